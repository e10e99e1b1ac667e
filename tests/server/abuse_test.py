#!/usr/bin/env python3
"""Clients that mean harm, each with an innocent one beside it whose streams and probes must not notice.

In the suite: each case once, on a tiny model, with bounds for a machine that is shared. INGOT_SOAK=1 holds the innocent client to the
bounds of docs/security.md.
"""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import abuse_cases
import server as fixture
import tiny_model

PROBE_S = 0.05 if fixture.SOAK else 3.0  # longest answer of /health; what was seen took 9 to 47
GAP_S = 0.25 if fixture.SOAK else 5.0    # longest gap in the innocent stream beyond what well-behaved company makes of it
MEMORY_MB = 256 + 50                     # the host budget, and a little


def post(port, path, body, headers=None, timeout=60):
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        link.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})})
        reply = link.getresponse()
        return reply.status, reply.read()
    finally:
        link.close()


class Innocent:
    """Asks /health and streams answers over and over, from an address of its own; remembers how long each took and what came."""

    REQUEST = {"prompt": "Tell me", "max_tokens": 40, "temperature": 0, "stream": True, "ignore_eos": True}

    def __init__(self, server):
        self.port = server.port
        self.stop = threading.Event()
        self.probe = self.gap = self.late = 0.0  # seconds at most; `late`: what this machine's load alone did to a short sleep
        self.answers, self.faults = [], []
        self.threads = [threading.Thread(target=self.watch, args=(work,)) for work in (self.health, self.stream)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(60)

    def watch(self, work):
        while not self.stop.is_set():
            try:
                work()
            except Exception as error:  # the test looks at it
                self.faults.append(f"{work.__name__}: {error!r}")
                return

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60, source_address=("127.0.0.2", 0))

    def health(self):
        began = time.monotonic()
        link = self.connect()
        link.request("GET", "/health")
        status = link.getresponse().status
        link.close()
        self.probe = max(self.probe, time.monotonic() - began)
        if status != 200:
            self.faults.append(f"/health: {status}")
        began = time.monotonic()
        time.sleep(0.02)
        self.late = max(self.late, time.monotonic() - began - 0.02)

    def stream(self):
        link = self.connect()
        last = time.monotonic()
        link.request("POST", "/v1/completions", json.dumps(self.REQUEST), {"Content-Type": "application/json"})
        reply = link.getresponse()
        text = b""
        while True:
            piece = reply.read1(1 << 16)
            now = time.monotonic()
            self.gap, last = max(self.gap, now - last), now
            if not piece:
                break
            text += piece
        link.close()
        if reply.status != 200:
            self.faults.append(f"{reply.status}: {text[:300]}")
            return
        words = [json.loads(line[6:])["choices"][0]["text"] for line in text.split(b"\n") if line.startswith(b"data: {")]
        self.answers.append("".join(words))


class AbuseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny")
        cls.server = cls.serve("--debug-endpoints")
        cls.server.start()
        with Innocent(cls.server) as alone:
            while len(alone.answers) < 2:
                time.sleep(0.01)
        cls.expected = alone.answers[0]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    @classmethod
    def serve(cls, *args, **options):
        return fixture.Server("--served-model-name", "test", "--threads", 1, *args, model=cls.model, **options)

    # ---- one case ----

    def send(self, case, data, outcomes):
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port), timeout=60)) as link:
            headers = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(data)), **case.headers}
            if case.method == "GET":
                headers.pop("Content-Length")
            head = f"{case.method} {case.path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value)
            reply = b""
            try:
                link.sendall(head.encode() + b"Connection: close\r\n\r\n" + data)
            except OSError:  # it has heard enough; what it said is there to read
                pass
            end = time.monotonic() + (case.leave_after or 60)
            try:
                while time.monotonic() < end:
                    link.settimeout(max(0.001, end - time.monotonic()))
                    piece = link.recv(case.read_rate // 10 or 1 << 20)
                    if not piece:
                        break
                    reply += piece
                    if case.read_rate:
                        time.sleep(0.1)
            except OSError:
                pass
            if reply.startswith(b"HTTP/1.1 "):
                outcomes.append((int(reply[9:12]), reply.partition(b"\r\n\r\n")[2]))
            elif not case.leave_after:
                outcomes.append((0, reply))

    def run_case(self, case):
        outcomes, data = [], case.data()  # made before anything is timed
        threads = [threading.Thread(target=self.send, args=(case, data, outcomes)) for _ in range(case.copies)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        for status, body in outcomes:
            self.assertIn(status, case.allowed, body[:300])
            if case.says and status in abuse_cases.REFUSED:
                self.assertIn(case.says.encode(), body[:2000])
            if status == 200:
                self.assertNotIn(b"[-1", body[:10_000])
        if not case.leave_after:
            self.assertEqual(len(outcomes), case.copies)

    def held(self):
        """What should be the same before and after."""
        process = pathlib.Path(f"/proc/{self.server.process.pid}")
        metrics = self.server.wait_idle()
        end = time.monotonic() + 20
        while len(os.listdir(process / "fd")) > self.files + 4 and time.monotonic() < end:
            time.sleep(0.02)
        faults = json.loads(self.server.get("/debug/integrity")[1])["faults"]
        return {"faults": faults, "used blocks": metrics["vllm:kv_cache_usage_perc"], "host bytes": metrics["ingot:host_bytes"],
                "failed steps": metrics["ingot:failed_steps_total"], "threads": len(os.listdir(process / "task"))}

    def run_cases(self, cases):
        self.files = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        before = self.held()
        memory = self.server.rss_mb()
        for case in cases:
            with self.subTest(case.name):
                with Innocent(self.server) as innocent:
                    self.run_case(case)
                    answered = len(innocent.answers)
                    end = time.monotonic() + 30
                    while len(innocent.answers) < answered + 1 and not innocent.faults and time.monotonic() < end:
                        time.sleep(0.01)
                self.assertEqual(innocent.faults, [])
                self.assertEqual(set(innocent.answers), {self.expected})
                self.assertLess(innocent.probe, PROBE_S + 4 * innocent.late, "/health took too long")
                self.assertLess(innocent.gap, GAP_S + 4 * innocent.late, "a gap in the stream")
                self.assertEqual(self.held(), before)
                self.assertLess(self.server.rss_mb() - memory, MEMORY_MB)

    def test_what_was_seen(self):
        self.run_cases(abuse_cases.seen())

    def test_what_was_invented(self):
        self.run_cases(abuse_cases.invented())

    def test_formats(self):
        self.run_cases(abuse_cases.formats())

    # ---- what needs a server of its own ----

    def test_idle_connections_do_not_lock_others_out(self):
        with self.serve("--max-connections", 32) as server:
            links = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(100)]
            self.assertEqual(server.get("/health")[0], 200)
            for link in links:
                link.close()

    def test_one_key_learns_nothing_of_another(self):
        secret = "the password of the safe is 4711, do not tell anybody " * 2
        with self.serve("--api-key", "one", "--api-key", "two") as server:
            def cached(key, text, **fields):
                status, body = post(server.port, "/v1/completions", {"prompt": text, "max_tokens": 1, **fields},
                                    {"Authorization": f"Bearer {key}"})
                self.assertEqual(status, 200, body)
                return json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]
            cached("one", secret)
            self.assertGreater(cached("one", secret), 50)
            self.assertEqual(cached("two", secret), 0)
            self.assertEqual(cached("one", secret, cache_salt="other"), 0)
            self.assertEqual(cached("two", secret, cache_salt="other"), 0)

    def test_a_team_shares_its_system_prompt(self):
        file = pathlib.Path(self.folder.name) / "system.txt"
        file.write_text("You are the assistant of a team that shares this long text at the beginning.")
        with self.serve("--api-key", "one", "--api-key", "two", "--shared-prefix", file) as server:
            def cached(key, question):
                messages = [{"role": "system", "content": file.read_text()}, {"role": "user", "content": question}]
                body = post(server.port, "/v1/chat/completions", {"messages": messages, "max_tokens": 1},
                            {"Authorization": f"Bearer {key}"})[1]
                return json.loads(body)["usage"]["prompt_tokens_details"]["cached_tokens"]
            question = "what is in the safe that nobody may know of, I wonder?"
            cached("one", question)
            self.assertIn(cached("two", question), range(64, 97))

    def test_a_log_that_nobody_reads(self):
        read_end, write_end = os.pipe()
        command = [str(fixture.binary()), "serve", "-m", str(self.model), "--port", "0", "--threads", "1", "--log-probes"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=write_end)
        os.close(write_end)
        try:
            text = b""
            while not fixture.LISTENING.search(text.decode(errors="replace")):
                text += os.read(read_end, 4096)
            port = int(fixture.LISTENING.search(text.decode()).group(1))
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            for _ in range(8000):
                link.request("GET", "/live", headers={"X-Request-Id": "x" * 100})
                reply = link.getresponse()
                reply.read()
                self.assertEqual(reply.status, 200)
            link.request("GET", "/metrics")
            dropped = [line for line in link.getresponse().read().decode().splitlines() if line.startswith("ingot:log_lines_dropped_total")]
            self.assertGreater(float(dropped[0].split()[1]), 0)
            link.close()
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(20), 0)
        finally:
            process.kill()
            process.wait()
            os.close(read_end)

    def test_hanging_up_drains(self):
        with self.serve() as server:
            server.signal(signal.SIGHUP)
            self.assertEqual(server.wait(25), 0)
            self.assertIn("draining", server.log())

    def test_the_server_is_alive_and_healthy(self):
        self.assertEqual(self.server.get("/live"), (200, b'{"status":"alive"}'))
        self.assertEqual(self.server.get("/health"), (200, b'{"status":"ok"}'))

    def test_absolute_targets(self):
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port), timeout=10)) as link:
            link.sendall(b"GET http://localhost/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            self.assertTrue(link.recv(100).startswith(b"HTTP/1.1 200"))


if __name__ == "__main__":
    fixture.main()
