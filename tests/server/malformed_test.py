#!/usr/bin/env python3
"""Every malformed request gets a 4xx with an error body, and the server answers a good request after each."""

import json
import pathlib
import socket
import sys
import tempfile
import time
import unittest

import malformed_cases as cases
import server as fixture
import tiny_model


def read_reply(link):
    """(status, headers, body) of one reply, or None when the connection ended without one."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = link.recv(65536)
        if not piece:
            if data:
                raise AssertionError(f"the reply was cut off: {data[:200]!r}")
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    need = int(headers.get("content-length", 0))
    while len(body) < need:
        piece = link.recv(65536)
        if not piece:
            raise AssertionError(f"the body was cut off: {len(body)} of {need} bytes")
        body += piece
    return int(lines[0].split()[1]), headers, body[:need]


def exchange(port, case):
    """The reply to a case, or None when the server closed the connection instead."""
    with socket.create_connection(("127.0.0.1", port), timeout=case.wait_s) as link:
        try:
            link.sendall(case.data)
        except OSError:
            pass  # the server has judged already, and closed; its reply is there to be read
        try:
            if case.half_close:
                link.shutdown(socket.SHUT_WR)
            return read_reply(link)
        except TimeoutError:
            raise AssertionError(f"no answer within {case.wait_s} s") from None
        except OSError:
            return None  # reset


# The C++ tests have all of them, without a model behind; through the real program some of each kind show that the parts
# belong together.
EVERY = 1 if fixture.SOAK else 16
MUTANTS = 300 if fixture.SOAK else 12


class MalformedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        model = tiny_model.make(pathlib.Path(cls.folder.name) / "tiny")
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, "--allowed-host", "t", *cls.limits(), model=model)
        cls.server.start()

    @classmethod
    def limits(cls):
        return ["--head-timeout", "1", "--body-timeout", "1"]

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def setUp(self):
        self.good = cases.Case("good", cases.post("/v1/completions", cases.COMPLETION))
        self.expected = self.check_good()

    def check_good(self):
        status, _, body = exchange(self.server.port, self.good)
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"]

    def check(self, case):
        """What came: a status, or "closed"."""
        reply = exchange(self.server.port, case)
        if reply is None:
            self.assertTrue(case.may_close, "the connection was closed without an answer")
            return "closed"
        status, headers, body = reply
        self.assertIn(status, case.allowed, body[:300])
        if status >= 400:
            self.assertTrue(headers["content-type"].startswith("application/json"), headers)
            error = json.loads(body)["error"]
            self.assertEqual(set(error), {"message", "type", "param", "code"})
            self.assertTrue(error["message"] and isinstance(error["message"], str), error)
            self.assertTrue(error["type"] and isinstance(error["type"], str), error)
            self.assertLess(len(body), 4000, "the error repeats what it was sent")
        return status

    def run_all(self, group, least):
        seen, failed = {}, []
        for case in group:
            try:
                seen_now = self.check(case)
                self.assertEqual(self.check_good(), self.expected, "the good request after it")
                seen.setdefault(seen_now, []).append(case.name)
            except (AssertionError, OSError, ValueError, KeyError) as error:
                failed.append(f"{case.name}: {type(error).__name__}: {error}")
                if self.server.process.poll() is not None:
                    self.fail(f"the server died of: {case.name}\n{self.server.log()[-4000:]}")
        total = sum(map(len, seen.values()))
        print(f"{total} answered as they must be: " + ", ".join(f"{key}: {len(names)}" for key, names in sorted(seen.items(), key=str)),
              file=sys.stderr)
        self.assertFalse(failed, f"{len(failed)} failed:\n" + "\n".join(failed[:60]))
        self.assertGreaterEqual(total, least)
        return seen

    def test_malformed(self):
        every = list(cases.cases())
        self.assertGreaterEqual(len(every), 500)
        seen = self.run_all(every[::EVERY], len(every) // EVERY)
        closed = seen.get("closed", [])
        print("closed without an answer: " + "; ".join(closed), file=sys.stderr)
        self.assertLessEqual(len(closed), 15)

    def test_mutants(self):
        seen = self.run_all(cases.mutants(MUTANTS), MUTANTS)
        self.assertNotIn(500, seen)

    def test_slow(self):
        """A client that stops in the middle is answered 408 when its time is over, and does not hold others up."""
        whole = self.good.data
        links = []
        for cut in (3, 40, whole.index(b"\r\n\r\n") + 2, len(whole) - 5):
            link = socket.create_connection(("127.0.0.1", self.server.port), timeout=60)
            link.sendall(whole[:cut])
            links.append((cut, link))
        self.assertEqual(self.check_good(), self.expected)
        for cut, link in links:
            with self.subTest(cut=cut), link:
                status, _, body = read_reply(link)
                self.assertEqual(status, 408)
                self.assertIn("message", json.loads(body)["error"])
                self.assertEqual(link.recv(100), b"")

    def test_drip(self):
        """A client that sends one byte now and then runs into the same limit."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as link:
            began = time.monotonic()
            try:
                for byte in self.good.data * 3:
                    link.sendall(bytes([byte]))
                    time.sleep(0.05)
                    if time.monotonic() - began > 30:
                        self.fail("still reading after 30 s")
            except OSError:
                pass
        self.assertEqual(self.check_good(), self.expected)

    def test_many_idle_connections(self):
        """Hundreds of silent connections do not keep a good request waiting."""
        links = [socket.create_connection(("127.0.0.1", self.server.port), timeout=10) for _ in range(400)]
        try:
            self.assertEqual(self.check_good(), self.expected)
        finally:
            for link in links:
                link.close()
        self.assertEqual(self.check_good(), self.expected)

    def test_clean_afterwards(self):
        self.assertEqual(self.server.wait_idle()["vllm:kv_cache_usage_perc"], 0)


if __name__ == "__main__":
    fixture.main()
