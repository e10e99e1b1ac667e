#!/usr/bin/env python3
"""What goes wrong between the hub and the cache: refusals, broken transfers, wrong bytes, several processes, full disks."""

import fcntl
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import time
import unittest

import fake_hub
from hub_case import LARGE_FILE, NAME, SECRET, HubCase, fixture, shards

ONE = "model-00001-of-00001.safetensors"


class FailuresTest(HubCase):
    def ranges(self):
        return [r[4] for r in self.hub.seen("storage")]

    def test_unknown_and_offline(self):
        self.assertIn("check the name", self.refused("run", "-m", "no/such", "-p", "x"))
        self.hub.add(NAME, shards(1))
        self.hub.requests.clear()
        self.assertIn("HF_HUB_OFFLINE", self.refused("run", "-m", NAME, "-p", "x", HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.requests, [])
        self.assertFalse(self.cache.exists())
        self.hub.fail("GET /api", 1, fake_hub.status(404))
        self.assertIn("check the name", self.refused("pull", NAME, expect=2))
        self.assertIn("OWNER/NAME", self.refused("pull", "./here", expect=2))

    def test_no_connection(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            start = time.monotonic()
            message = self.refused("pull", NAME, HF_ENDPOINT="http://127.0.0.1:%d" % unused.getsockname()[1])
        self.assertIn("check the name and the connection", message)
        self.assertLess(time.monotonic() - start, 30)

    def test_busy_server(self):
        files = shards(2)
        self.hub.add(NAME, files)
        self.hub.fail("GET /api", 1, fake_hub.status(503, Retry_After="0"))
        self.hub.fail("HEAD .*config", 1, fake_hub.status(500, Retry_After="0"))
        self.hub.fail(LARGE_FILE, 1, fake_hub.status(429, Retry_After="1"))
        start = time.monotonic()
        self.check(self.pull(), files)
        self.assertGreater(time.monotonic() - start, 0.9, "Retry-After counts")

    def test_busy_for_good(self):
        self.hub.add(NAME, shards(1))
        self.hub.fail("GET /api", 99, fake_hub.status(503, Retry_After="0"))
        start = time.monotonic()
        self.assertIn("answered 503; try again later", self.refused("pull", NAME))
        self.assertLess(time.monotonic() - start, 14, "Retry-After counts: without it 15 s")
        self.assertEqual(len(self.hub.requests), 6)

    def test_one_failure_ends_the_others(self):
        files = shards(2)
        self.hub.add(NAME, files)
        self.hub.fail("GET .*/model-00001", 99, fake_hub.status(503, Retry_After="50"))
        self.hub.fail("GET .*/model-00002", 99, fake_hub.status(404))
        start = time.monotonic()
        self.assertIn("lists it but does not have it", self.refused("pull", NAME))
        self.assertLess(time.monotonic() - start, 45, "nobody waits until the other may ask again")

    def test_expired_address(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail(LARGE_FILE, 1, fake_hub.truncated)
        self.hub.fail(LARGE_FILE, 2, fake_hub.status(403, Retry_After="0"))
        self.check(self.pull(), files)
        self.ingot("rm", NAME)
        self.hub.fail(LARGE_FILE, 99, fake_hub.status(403, Retry_After="0"))
        self.assertIn("answered 403; try again later", self.refused("pull", NAME))

    # ---- transfers that break ----

    def test_truncation_is_continued(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail(LARGE_FILE, 2, fake_hub.truncated)
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), [None, "bytes=100000-", "bytes=150000-"])

    def test_a_break_before_the_first_byte_loses_nothing(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail(LARGE_FILE, 1, fake_hub.truncated)
        self.hub.fail(LARGE_FILE, 1, lambda handler, data: fake_hub.truncated(handler, data, keep=0))
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), [None, "bytes=100000-", "bytes=100000-"])

    def test_ranges_that_end_early(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail(LARGE_FILE, 1, fake_hub.truncated)
        self.hub.fail(LARGE_FILE, 1, fake_hub.short_range)
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), [None, "bytes=100000-", "bytes=160000-"])

    def test_other_range_than_asked_for(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail(LARGE_FILE, 1, fake_hub.truncated)
        self.hub.fail(LARGE_FILE, 1, fake_hub.other_range)
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), [None, "bytes=100000-", None])

    def test_server_without_ranges(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.ranges = False
        self.hub.fail(LARGE_FILE, 1, lambda handler, data: fake_hub.truncated(handler, data, keep=1234))
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), [None, "bytes=1234-"], "an answer with the whole file is taken as such")

    def test_stall_is_continued(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.stall(70_000)
        start = time.monotonic()
        self.check(self.pull(HF_HUB_DOWNLOAD_TIMEOUT="1"), files)
        self.assertLess(time.monotonic() - start, 60)

    def test_redirects_without_end(self):
        self.hub.add(NAME, shards(1))
        self.hub.fail("GET /api", 99, lambda handler, data: handler.reply(302, Location=handler.path))
        self.assertIn("too many redirects", self.refused("pull", NAME))

    def test_interrupted_then_resumed(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            files = shards(1)
            self.hub.add(NAME, files)
            self.stall(70_000)
            process = self.start("pull", NAME)
            self.wait_for_bytes(70_000)
            process.send_signal(number)
            process.communicate()
            self.assertEqual(process.returncode, -number)
            self.assertIn("HF_HUB_OFFLINE", self.refused("run", "-m", NAME, "-p", "x", HF_HUB_OFFLINE="1"))
            row, = self.listed()
            self.assertEqual((row["name"], row["complete"]), (NAME, False))
            self.hub.requests.clear()
            self.check(self.pull(), files)
            self.assertEqual(self.ranges(), ["bytes=70000-"])
            self.assertEqual(self.blobs(".incomplete"), [])
            self.ingot("rm", NAME)

    def test_begun_and_given_up(self):
        self.hub.add(NAME, shards(1))
        self.stall(70_000)
        process = self.start("pull", NAME)
        self.wait_for_bytes(70_000)
        process.kill()
        process.communicate()
        self.ingot("rm", NAME)
        self.assertEqual(self.listed(), [])
        self.assertFalse(self.repo.exists())

    def test_full_disk(self):
        files = shards(1)
        self.hub.add(NAME, files)
        # A limit on the size of files stands for the full disk: the same call fails.
        limit = {"restore_signals": False,  # the signal of that limit stays ignored
                 "preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))}
        process = self.start("pull", NAME, options=limit)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1, err)
        self.assertIn("make room", err.splitlines()[-1])
        self.hub.requests.clear()
        self.check(self.pull(), files)
        self.assertEqual(self.ranges(), ["bytes=150000-"])

    # ---- wrong bytes ----

    def test_wrong_hash(self):
        files = shards(1)
        self.hub.add(NAME, files)
        for fault in (fake_hub.wrong_bytes, fake_hub.too_long):
            self.hub.fail(LARGE_FILE, 2, fault)
            self.assertIn("another hash", self.refused("pull", NAME))
            self.assertFalse((self.repo / "refs" / "main").exists())
            digest = fake_hub.content_hash(files[ONE])
            self.assertFalse(set(self.blobs()) & {digest, digest + ".incomplete"}, "wrong bytes are not kept")
        for fault in (fake_hub.wrong_bytes, fake_hub.too_long):
            self.hub.fail(LARGE_FILE, 1, fault)
            self.check(self.pull(), files)  # once is forgiven
            self.ingot("rm", NAME)

    def test_wrong_beginning_on_disk(self):
        files = shards(1)
        self.hub.add(NAME, files)
        (self.repo / "blobs").mkdir(parents=True)
        partial = self.repo / "blobs" / (fake_hub.content_hash(files[ONE]) + ".incomplete")
        for size in (1000, 200_000, 300_000):
            partial.write_bytes(b"?" * size)
            self.hub.requests.clear()
            self.check(self.pull(), files)
            self.assertEqual(self.ranges(), ["bytes=1000-", None] if size == 1000 else [None])
            self.ingot("rm", NAME)
            (self.repo / "blobs").mkdir(parents=True)

    def test_wrong_small_file(self):
        files = shards(1)
        commit = self.hub.add(NAME, files)
        digest = fake_hub.content_hash(files["config.json"])
        self.hub.repos[NAME]["commits"][commit]["config.json"] = b"[]"
        self.hub.fail("HEAD .*/config.json", 1, lambda handler, data: handler.reply(200, b"[]", ETag='"%s"' % digest))
        self.assertIn("config.json: what came has another hash", self.refused("pull", NAME))

    def test_hostile_listing(self):
        for name in ("../../evil.json", "/evil.json", "a/../../evil", "a\\b"):
            self.hub.add(NAME, {**shards(1), name: b"x"})
            self.assertIn("leads out of the folder", self.refused("pull", NAME))
        self.hub.fail("GET /api", 1, lambda handler, data: handler.reply(200, b"<html>"))
        self.assertIn("is HF_ENDPOINT a hub?", self.refused("pull", NAME))
        self.hub.add(NAME, shards(1))
        tag = '"../../../../../../../../../../../../../../../../../../../../tmp/evil"'
        self.hub.fail("HEAD .*/config.json", 1, lambda handler, data: handler.reply(200, b"[]", ETag=tag))
        self.assertIn("no hash to check it by", self.refused("pull", NAME))
        self.assertFalse(self.repo.exists())

    # ---- several processes ----

    def test_two_processes(self):
        files = shards(4)
        self.hub.add(NAME, files)
        go = self.stall(50_000)
        first = self.start("pull", NAME)
        self.wait_for_bytes(50_000)
        second = self.start("pull", NAME)
        self.assertIn("another process is at it", second.stderr.readline())
        self.assertIsNone(second.poll())
        go.set()
        results = [process.communicate(timeout=60) for process in (first, second)]
        self.assertEqual([first.returncode, second.returncode], [0, 0], results)
        self.assertEqual(results[0][0], results[1][0])
        self.check(pathlib.Path(results[0][0].strip()), files)
        self.assertEqual(len(self.hub.seen("storage")), 5, "each file once, and one continued")

    def test_another_program_has_a_file(self):
        files = shards(1)
        self.hub.add(NAME, files)
        digest = fake_hub.content_hash(files[ONE])
        lock = self.cache / ".locks" / "models--owner--tiny" / (digest + ".lock")
        lock.parent.mkdir(parents=True)
        (self.repo / "blobs").mkdir(parents=True)
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = self.start("pull", NAME)
            while "another program is fetching " + ONE not in (line := process.stderr.readline()):
                self.assertIn("ingot: ", line)
            (self.repo / "blobs" / digest).write_bytes(files[ONE])
        out = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0)
        self.check(pathlib.Path(out.strip()), files)
        self.assertEqual(self.hub.seen("storage"), [])

    def test_removal_waits_for_the_download(self):
        files = shards(1)
        self.hub.add(NAME, files)
        go = self.stall(50_000)
        first = self.start("pull", NAME)
        self.wait_for_bytes(50_000)
        second = self.start("rm", NAME)
        self.assertIn("another process is at it", second.stderr.readline())
        go.set()
        for process in (first, second):
            process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
        self.assertFalse(self.repo.exists())

    # ---- the way there ----

    def test_proxy(self):
        files = shards(1)
        self.hub.add(NAME, files, token=SECRET)
        proxied = {"HF_ENDPOINT": "http://hub.invalid", "http_proxy": self.hub.url, "no_proxy": "127.0.0.1"}
        self.check(self.pull(HF_TOKEN=SECRET, **proxied), files)
        self.assertTrue(all(r[3] is None for r in self.hub.seen("storage")), "the token left the hub")

    @unittest.skipUnless(shutil.which("openssl"), "openssl is not installed")
    def test_tls(self):
        certificate, key = str(self.folder / "cert.pem"), str(self.folder / "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate,
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True,
                       stderr=subprocess.DEVNULL)
        hub = fake_hub.Hub((certificate, key))
        self.addCleanup(hub.close)
        small = {"config.json": b"{}", "tokenizer.json": b"[{}]", "model.safetensors": b"weights"}
        hub.add(NAME, small, token=SECRET)
        start = time.monotonic()
        self.assertIn("SSL_CERT_FILE", self.refused("pull", NAME, HF_ENDPOINT=hub.url, HF_TOKEN=SECRET))
        self.assertLess(time.monotonic() - start, 14, "a certificate does not get better by asking again")
        self.assertEqual(hub.requests, [], "the token went to a server nobody vouches for")
        self.assertIn("SSL_CERT_FILE", self.refused("pull", NAME, HF_ENDPOINT=hub.url, SSL_CERT_FILE="/none", expect=2))
        self.check(self.pull(HF_ENDPOINT=hub.url, HF_TOKEN=SECRET, SSL_CERT_FILE=certificate), small)
        hub.add(NAME, shards(1), token=SECRET)  # large files come from the storage, which is plain http
        message = self.refused("pull", NAME, HF_ENDPOINT=hub.url, HF_TOKEN=SECRET, SSL_CERT_FILE=certificate)
        self.assertIn("without encryption", message)
        self.assertEqual(hub.seen("storage"), [])


if __name__ == "__main__":
    fixture.main()
