#!/usr/bin/env python3
"""Keys, configuration, draining and stopping of the server."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import openai

import server as fixture
import tiny_model


def client(server, key="none", **options):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=60, **options)


class Stream(threading.Thread):
    """Reads a long answer on a thread of its own."""

    def __init__(self, server, tokens=400):
        super().__init__()
        self.server, self.tokens = server, tokens
        self.begun, self.error, self.finish, self.chunks = threading.Event(), None, None, 0

    def run(self):
        try:
            for chunk in client(self.server).completions.create(model="test", prompt="Once upon a time", max_tokens=self.tokens,
                                                                stream=True, temperature=0, extra_body={"ignore_eos": True}):
                self.chunks += 1
                if self.chunks == 3:
                    self.begun.set()
                self.finish = chunk.choices[0].finish_reason or self.finish if chunk.choices else self.finish
        except Exception as error:  # the test looks at it
            self.error = error
        finally:
            self.begun.set()


class LifecycleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny", max_len=65536)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *args, **options):
        return fixture.Server("--served-model-name", "test", "--threads", 1, *args, model=self.model, **options)

    def test_api_keys(self):
        keys = pathlib.Path(self.folder.name) / "keys"
        keys.write_text("third-key\n\nfourth-key\n")
        with self.serve("--api-key", "first-key", "--api-key", "second-key", "--api-key-file", keys) as server:
            for key in ("first-key", "second-key", "third-key", "fourth-key"):
                answer = client(server, key).completions.create(model="test", prompt="Hi", max_tokens=2, extra_body={"ignore_eos": True})
                self.assertEqual(answer.usage.completion_tokens, 2)
            for key in ("first-ke", "first-key2", "FIRST-KEY", "x", "third-key\tfourth-key"):
                with self.assertRaises(openai.AuthenticationError) as caught:
                    client(server, key).completions.create(model="test", prompt="Hi", max_tokens=2)
                self.assertIn("message", caught.exception.body)
            for path in ("/v1/models", "/metrics"):
                self.assertEqual(server.get(path, headers={"Authorization": "Bearer second-key"})[0], 200, path)
                self.assertEqual(server.get(path, headers={"Authorization": "Basic second-key"})[0], 401, path)
            self.assertEqual(server.get("/v1/models")[0], 401)
            self.assertEqual(server.get("/health")[0], 200)  # for load balancers, which have no key
            for key in ("first-key", "third-key"):
                self.assertNotIn(key, server.log())

    def test_config_file(self):
        config = pathlib.Path(self.folder.name) / "serve.conf"
        config.write_text('# a comment\nserved-model-name = "from-file"\napi-key = k1\napi-key = k2\n')
        with fixture.Server("--config", config, model=self.model) as server:
            self.assertEqual(server.get("/v1/models")[0], 401)
            self.assertEqual([model.id for model in client(server, "k2").models.list().data], ["from-file"])
        with self.serve("--config", config) as server:  # a flag wins over the file
            self.assertEqual([model.id for model in client(server, "k1").models.list().data], ["test"])

    def test_wrong_config_is_an_error(self):
        config = pathlib.Path(self.folder.name) / "wrong.conf"
        config.write_text("no-such-setting = 1\n")
        done = subprocess.run([fixture.binary(), "serve", "-m", self.model, "--port", "0", "--config", config], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("no-such-setting", done.stderr)

    def test_port_in_use(self):
        with self.serve() as server:
            done = subprocess.run([fixture.binary(), "serve", "-m", self.model, "--port", str(server.port)], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(str(server.port), done.stderr)

    def test_drain(self):
        with self.serve("--drain-timeout", "120") as server:
            stream = Stream(server, tokens=12000)
            stream.start()
            self.assertTrue(stream.begun.wait(60))
            server.signal()
            server.wait_draining()
            self.assertTrue(stream.is_alive(), "the stream ended before the server was asked to stop: give it more tokens")
            with self.assertRaises(openai.InternalServerError) as caught:
                client(server).completions.create(model="test", prompt="Hi", max_tokens=2)
            self.assertEqual(caught.exception.status_code, 503)
            self.assertIn("retry-after", caught.exception.response.headers)
            stream.join(120)
            self.assertIsNone(stream.error)
            self.assertEqual((stream.finish, server.wait(60)), ("length", 0))

    def test_second_signal_stops(self):
        with self.serve() as server:
            stream = Stream(server, tokens=60000)
            stream.start()
            self.assertTrue(stream.begun.wait(60))
            server.signal()
            server.wait_draining()
            self.assertTrue(stream.is_alive())
            server.signal()
            server.wait(25)  # less than the 30 s that draining may take
            stream.join(60)
            self.assertFalse(stream.is_alive())
            self.assertNotEqual(stream.finish, "length")

    def test_drain_has_a_limit(self):
        with self.serve("--drain-timeout", "1") as server:
            stream = Stream(server, tokens=60000)
            stream.start()
            self.assertTrue(stream.begun.wait(60))
            server.signal(signal.SIGTERM)
            server.wait(25)  # less than what it may take unasked
            stream.join(60)
            self.assertFalse(stream.is_alive())
            self.assertNotEqual(stream.finish, "length")

    def test_interrupt_of_an_idle_server(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.serve() as server:
                server.signal(number)
                self.assertEqual(server.wait(25), 0)

    def test_full_queue(self):
        with self.serve("--max-seqs", "1", "--max-waiting", "2") as server:
            streams = [Stream(server, tokens=20000) for _ in range(6)]
            for stream in streams:
                stream.start()
            end = time.monotonic() + 60
            while sum(stream.error is not None for stream in streams) < 3 and time.monotonic() < end:
                time.sleep(0.02)
            refused = [stream.error for stream in streams if stream.error is not None]
            self.assertEqual(len(refused), 3, [repr(stream.error) for stream in streams])
            for error in refused:
                self.assertEqual(error.status_code, 503)
                self.assertGreater(int(error.response.headers["retry-after"]), 0)
            server.signal()
            server.wait_draining()  # two at once would be one
            server.signal()
            server.wait(60)
            for stream in streams:
                stream.join(60)

    def test_log_line_of_a_request(self):
        with self.serve() as server:
            raw = client(server).completions.with_raw_response.create(model="test", prompt="Hello", max_tokens=7,
                                                                      extra_body={"ignore_eos": True})
            number = raw.headers["x-request-id"]
            self.assertTrue(server.logged(number))
            lines = [line for line in server.log().splitlines() if number in line]
            self.assertEqual(len(lines), 1, server.log())
            self.assertRegex(lines[0], r"\b5\b")  # tokens of the prompt
            self.assertRegex(lines[0], r"\b7\b")  # and of the answer
            self.assertTrue(re.search("length", lines[0]))

    def test_harmful_request_id_is_replaced(self):
        with self.serve() as server:
            for bad in ("x" * 500, "a b", "a\tb"):
                raw = client(server).completions.with_raw_response.create(model="test", prompt="Hello", max_tokens=1,
                                                                          extra_headers={"X-Request-Id": bad})
                self.assertNotEqual(raw.headers["x-request-id"], bad)

    @unittest.skipUnless(pathlib.Path("/proc/self/maps").exists(), "tells when a file is mapped")
    def test_a_model_that_is_cut_short_while_it_loads(self):
        file = pathlib.Path(self.folder.name) / "model.gguf"
        for command in (["run", "--ids", "1", "-n", "1"], ["serve", "--port", "0"]):
            # Cut between mapping and reading the header, the file is merely too short for what it claims; cut later, it is
            # loaded: tried again.
            for _ in range(40):
                text = self.cut_while_loading(command, file)
                if text and "header: claims" not in text:
                    break
            self.assertIn(f"ingot: {file}: was cut short while it was read", text)

    def cut_while_loading(self, command, file):
        """What it says at its end; empty: it was quicker."""
        shutil.copy(fixture.default_model(), file)
        process = subprocess.Popen([str(fixture.binary()), *command, "-m", str(file), "--threads", "1"], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        maps = pathlib.Path(f"/proc/{process.pid}/maps")
        while process.poll() is None and str(file) not in maps.read_text():
            time.sleep(0.001)
        os.truncate(file, 1000)
        text = ""
        for line in process.stderr:
            text += line
            if "ingot: serving " in line:
                process.kill()
        process.communicate(timeout=60)
        if process.returncode in (0, -signal.SIGKILL):
            return ""
        self.assertEqual(process.returncode, 1, text)
        return text

    def test_cors(self):
        with self.serve("--cors-origin", "https://chat.example") as server:
            request = urllib.request.Request(server.url + "/v1/chat/completions", method="OPTIONS", headers={
                "Origin": "https://chat.example", "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type"})
            with urllib.request.urlopen(request) as reply:
                self.assertIn(reply.status, (200, 204))
                self.assertEqual(reply.headers["Access-Control-Allow-Origin"], "https://chat.example")
                self.assertIn("POST", reply.headers["Access-Control-Allow-Methods"])
            request = urllib.request.Request(server.url + "/v1/models", headers={"Origin": "https://evil.example"})
            with urllib.request.urlopen(request) as reply:
                self.assertNotIn(reply.headers.get("Access-Control-Allow-Origin"), ("*", "https://evil.example"))


if __name__ == "__main__":
    fixture.main()
