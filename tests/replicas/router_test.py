#!/usr/bin/env python3
"""Two servers behind routers that know prefixes or sessions: agents' turns go where their prefix is, and a replica may die or drain."""

import json
import pathlib
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "server")]

import openai  # noqa: E402

import replicas_prefix  # noqa: E402
import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

MODES = ("prefix", "session")
TOKENS = 3000  # of an answer that is streamed: what is ready together is sent together, on a busy machine all of forty tokens


class RouterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.model = tiny_model.make(pathlib.Path(folder.name) / "tiny", max_len=8192)

    def test_turns_find_the_prefix_that_round_robin_misses(self):
        for name in replicas_prefix.ROUTERS:
            tokens, whole, requests = replicas_prefix.measure(name, self.model, agents=9, turns=5)
            print(f"{name}: {100 * tokens:.0f} % of the known tokens, {100 * whole:.0f} % of the turns; requests {requests}", flush=True)
            with self.subTest(name):
                self.assertGreater(min(requests), 0, "both replicas work")
                if "round robin" in name:
                    self.assertLess(whole, 0.85)
                else:
                    self.assertEqual((tokens, whole), (1, 1))

    def test_the_openai_client(self):
        for mode in MODES:
            with self.subTest(mode), self.serve() as one, self.serve() as two, replicas_prefix.Router(mode, [one, two]) as router:
                client = openai.OpenAI(base_url=router.url + "/v1", api_key="none", max_retries=0, timeout=120)
                ask = {"model": "ingot", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": TOKENS, "temperature": 0,
                       "extra_body": {"ignore_eos": True}}
                whole = client.chat.completions.create(**ask)
                self.assertEqual(whole.usage.completion_tokens, TOKENS)
                chunks = list(client.chat.completions.create(**ask, stream=True))
                self.assertGreater(len(chunks), 3)
                self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks), whole.choices[0].message.content)
                with self.assertRaises(openai.BadRequestError) as error:
                    client.chat.completions.create(**ask, logit_bias={"1": 1000})
                self.assertIn("logit_bias", str(error.exception))

    def test_what_is_passed_on(self):
        """Unknown parameters, and keys: as docs/replicas.md says."""
        talk = {"model": "ingot", "max_tokens": 4, "messages": [{"role": "user", "content": "Why?"}]}
        expected = {"prefix": {"chat": 200, "odd chat": 200, "messages": 404}, "session": {"chat": 200, "odd chat": 400, "messages": 401}}
        with self.serve("--api-key", "secret") as one, self.serve("--api-key", "secret") as two:
            for mode in MODES:
                with self.subTest(mode), replicas_prefix.Router(mode, [one, two]) as router:
                    said = {name: self.post(router.url + path, body) for name, path, body in (
                        ("chat", "/v1/chat/completions", talk), ("odd chat", "/v1/chat/completions", talk | {"no_such_parameter": 1}),
                        ("messages", "/v1/messages", talk))}
                    self.assertEqual(said, expected[mode])

    @staticmethod
    def post(url, body):
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer secret"})
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_a_replica_that_dies_or_drains(self):
        """Requests that are not streams are asked again elsewhere: none fails."""
        for mode in MODES:
            for end in (fixture.Server.kill, fixture.Server.signal):
                with self.subTest(mode, end=end.__name__), self.serve() as two:
                    one = self.serve()
                    one.start()
                    self.addCleanup(one.kill)
                    with replicas_prefix.Router(mode, [one, two]) as router:
                        self.converse_while(router, lambda: end(one))

    def converse_while(self, router, happens):
        """Six clients ask at least ten times each before and after it happens."""
        failed, counts, happened = [], [0] * 6, threading.Event()

        def client(number):
            talk = [{"role": "user", "content": f"{number * 7919} is what client {number} says. " * 5}]
            after = 0
            try:
                while after < 10:
                    after += happened.is_set()
                    usage = replicas_prefix.chat(router.url, talk, f"client {number}", 64)["usage"]
                    self.assertEqual(usage["completion_tokens"], 64)
                    counts[number] += 1
            except Exception as error:
                failed.append(error)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
        for thread in clients:
            thread.start()
        while min(counts) < 10 and not failed:
            time.sleep(0.01)
        happens()
        happened.set()
        for thread in clients:
            thread.join(120)
        self.assertEqual(failed, [])

    def serve(self, *more):
        return fixture.Server("--served-model-name", "ingot", "--threads", 1, *more, model=self.model)


if __name__ == "__main__":
    fixture.main()
