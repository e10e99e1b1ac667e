#!/usr/bin/env python3
"""The prefix cache in files: over restarts, kills, a full disk, a folder of somebody else; and more conversations than memory holds.

With INGOT_SOAK=1: 200 kills, 10,000 conversations.
"""

import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import server as fixture
import tiny_model

KILLS = 200 if fixture.SOAK else 5
CONVERSATIONS = 10_000 if fixture.SOAK else 200


def ask(server, prompt, tokens=12, **more):
    """(text, cached prompt tokens, prompt tokens) of a greedy answer."""
    body = {"model": "test", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        answer = json.load(reply)
    usage = answer["usage"]
    return answer["choices"][0]["text"], usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def labelled(server, name):
    """The samples of one metric, by the last of their labels."""
    text = server.get("/metrics")[1].decode()
    return {label: float(value) for label, value in re.findall(rf'^{name}\{{.*="(\w+)"\}} (\S+)$', text, re.MULTILINE)}


class FullDisk(fixture.Server):
    """Whose files can have 32 KiB at most."""

    def command(self):
        return ["bash", "-c", 'trap "" XFSZ; ulimit -f 32; exec "$@"', "bash", *super().command()]


class PrefixTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny", max_len=4096)
        beginnings = ["You are a careful clerk. " * 12, "Once upon a time there was a king. " * 6]
        cls.prompts = [beginnings[i % 2] + f"Question {i // 2}: " * (1 + i % 5) for i in range(12)]
        with cls.serve() as plain:
            cls.expected = [ask(plain, prompt)[0] for prompt in cls.prompts]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def serve(cls, *args, kind=fixture.Server):
        return kind("--served-model-name", "test", "--threads", 1, "--max-model-len", 1024, *args, model=cls.model)

    def cache(self):
        """A folder that is not there yet."""
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        return pathlib.Path(place.name) / "cache"

    def test_a_restart_knows_the_prompt(self):
        cache = self.cache()
        for cached_before in (False, True):
            with self.serve("--prefix-dir", cache) as server:
                text, cached, tokens = ask(server, self.prompts[0])
                self.assertEqual(text, self.expected[0])
                self.assertEqual(cached, (tokens - 1) // 16 * 16 if cached_before else 0)
                self.assertEqual(labelled(server, "ingot:prefix_tier_hits_total"), {"host": 0, "disk": cached})
                self.assertEqual(server.metrics()["vllm:external_prefix_cache_hits_total"], cached)
                self.assertEqual(ask(server, self.prompts[0], cache_salt=f"salt {cached_before}")[1], 0, "a salt is a wall here too")

    def test_killed_at_any_moment(self):
        cache, draw = self.cache(), random.Random(7)
        for kill in range(KILLS + 1):
            server = self.serve("--prefix-dir", cache, "--kv-blocks", 80, "--max-seqs", 4)
            server.start()
            self.addCleanup(server.kill)
            wrong, over = [], threading.Event()

            def client(seed):
                pick = random.Random(seed)
                while not over.is_set():
                    i = pick.randrange(len(self.prompts))
                    try:
                        text, _, _ = ask(server, self.prompts[i])
                    except OSError:
                        return  # it was killed
                    if text != self.expected[i]:
                        wrong.append((i, text))

            clients = [threading.Thread(target=client, args=(100 * kill + n,)) for n in range(3)]
            for one in clients:
                one.start()
            time.sleep(draw.uniform(0.01, 0.4))
            damaged = labelled(server, "ingot:prefix_dropped_blocks_total")["damaged"]
            if kill < KILLS:
                server.kill()
            over.set()
            for one in clients:
                one.join()
            self.assertEqual(wrong, [], f"after {kill} kills")
            self.assertEqual(damaged, 0, "a file that had its name was not whole")
            if kill == KILLS:
                found = [ask(server, prompt)[:2] for prompt in self.prompts]
                self.assertEqual([text for text, _ in found], self.expected)
                self.assertGreater(sum(cached for _, cached in found), 0)
                server.stop()

    def test_a_full_disk_costs_one_line(self):
        with self.serve("--prefix-dir", self.cache(), "--block-size", 128, kind=FullDisk) as server:
            for _ in range(2):
                for prompt, text in zip(self.prompts, self.expected):
                    self.assertEqual(ask(server, prompt)[0], text)
            self.assertTrue(server.logged("no more of the prefix cache is kept there"))
        lines = [line for line in server.log().splitlines() if "prefix cache" in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("File too large", lines[0])

    def test_a_folder_of_somebody_else_is_left_alone(self):
        cache = self.cache()
        cache.mkdir(mode=0o700)
        (cache / "letters.txt").write_text("dear")
        with self.serve("--prefix-dir", cache) as server:
            self.assertEqual(ask(server, self.prompts[0])[0], self.expected[0])
            self.assertEqual(server.log().count("has other files in it"), 1, server.log())
        self.assertEqual([path.name for path in cache.iterdir()], ["letters.txt"])

    def test_two_servers_share_a_folder(self):
        cache = self.cache()
        with self.serve("--prefix-dir", cache) as one, self.serve("--prefix-dir", cache) as two:
            ask(one, self.prompts[0])
            end = time.monotonic() + 60
            while one.metrics()["ingot:prefix_moved_bytes_total"] == 0 or labelled(one, "ingot:prefix_moved_bytes_total")["host_to_disk"] == 0:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)
            self.assertGreater(ask(two, self.prompts[0])[1], 0)

    def test_chat_goes_on_with_a_saved_conversation(self):
        cache, talk = self.cache(), pathlib.Path(self.folder.name) / "talk.json"

        def chat(*lines):
            return subprocess.run([fixture.binary(), "chat", "-m", self.model, "--threads", "1", "--max-model-len", "1024", "--temperature", "0",
                                   "-n", "40", "--prefix-dir", cache], input="\n".join(lines), capture_output=True, text=True, errors="replace", check=True)

        first = "Tell me about the sea, the wind and all the ships that sail there. " * 3
        chat(first, f"/save {talk}")
        said = chat(f"/load {talk}", "And the sky?", "/stats").stdout
        cached, tokens = map(int, re.search(r"(\d+) of (?:the )?(\d+) prompt tokens", said).groups())
        self.assertGreater(cached, tokens * 0.6, said)  # its answers are no UTF-8, and not the same tokens when they are read again

    def test_more_conversations_than_memory_holds(self):
        """64 at a time, two turns each; what leaves the device and host memory comes back, and memory stays what it was."""
        ram = 8 << 20
        with self.serve("--prefix-dir", self.cache(), "--prefix-ram", ram, "--prefix-dir-bytes", 64 << 20, "--kv-blocks", 256,
                        "--max-seqs", 16) as server, self.serve("--no-prefix-caching", "--kv-blocks", 256) as plain:
            for i in range(20):
                ask(server, f"Warm up {i}. " * 20)
            before = server.rss_mb()
            cached = 0

            def converse(number):
                prompt = f"Conversation {number}: " + "what do you think of it? " * 8
                text, _, _ = ask(server, prompt, 24)
                again, found, _ = ask(server, prompt + text, 8)
                if number % 20 == 0:
                    self.assertEqual((text, again), (ask(plain, prompt, 24)[0], ask(plain, prompt + text, 8)[0]))
                return found

            with concurrent.futures.ThreadPoolExecutor(64) as pool:
                cached = sum(pool.map(converse, range(CONVERSATIONS)))
            self.assertGreater(cached, CONVERSATIONS * 100, "the second turn found the first")
            metrics = server.wait_idle()
            self.assertEqual(labelled(server, "ingot:prefix_dropped_blocks_total")["damaged"], 0)
            self.assertLess(server.rss_mb() - before, ram / (1 << 20) + 24, metrics)


if __name__ == "__main__":
    fixture.main()
