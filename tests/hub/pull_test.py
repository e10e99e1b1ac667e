#!/usr/bin/env python3
"""`-m NAME`, `ingot pull`, `list` and `rm` against a server that behaves like the hub."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fake_hub

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "server"))
import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

BINARY = str(fixture.binary())
SECRET = "hf_SecretOfTheTest"
NAME = "owner/tiny"


def model_files():
    """A checkpoint that loads, with files nobody needs."""
    with tempfile.TemporaryDirectory() as folder:
        files = {path.name: path.read_bytes() for path in tiny_model.make(folder).iterdir()}
    files.update({"README.md": b"hello", "pytorch_model.bin": b"pickle" * 1000, "onnx/model.onnx": b"x" * 5000})
    return files


def shards(count, size=200_000):
    source = random.Random(7)
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, count) for i in range(count)]
    files = {name: source.randbytes(size) for name in names}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": {str(i): n for i, n in enumerate(names)}}).encode()
    files.update({"config.json": b"{}", "tokenizer.json": b"{}"})
    return files


class PullTest(unittest.TestCase):
    def setUp(self):
        self.hub = fake_hub.Hub()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ingot-hub-"))
        self.cache = self.folder / "home" / "hub"

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.folder)

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        return {**kept, "HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "home"), **more}

    def start(self, *arguments, **environment):
        return subprocess.Popen([BINARY, *arguments], env=self.environment(**environment), cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ingot(self, *arguments, expect=0, **environment):
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, expect, (arguments, out, err))
        self.assertNotIn(SECRET, out + err)
        return out if expect == 0 else err

    def refused(self, *arguments, expect=1, **environment):
        """The one line that says why."""
        lines = self.ingot(*arguments, expect=expect, **environment).splitlines()
        self.assertTrue(all(": fetching " in line for line in lines[:-1]), lines)
        return lines[-1]

    def pull(self, name=NAME, **environment):
        return pathlib.Path(self.ingot("pull", name, **environment).strip())

    def check(self, path, files, wanted):
        """The snapshot has exactly these files, with their bytes, as links to blobs named by their hash."""
        found = sorted(str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir())
        self.assertEqual(found, sorted(wanted))
        for name in wanted:
            self.assertEqual((path / name).read_bytes(), files[name])
            self.assertTrue((path / name).is_symlink())
            self.assertFalse(os.readlink(path / name).startswith("/"))
            self.assertEqual((path / name).resolve().name, fake_hub.content_hash(files[name]))

    def blobs(self, ending=""):
        return sorted(p.name for p in (self.cache / "models--owner--tiny" / "blobs").glob("*" + ending))

    # ---- what works ----

    def test_pull_and_run(self):
        files = model_files()
        commit = self.hub.add(NAME, files)
        path = self.pull()
        self.assertEqual(path, self.cache / "models--owner--tiny" / "snapshots" / commit)
        self.check(path, files, ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                 "model.safetensors"])
        self.assertEqual((self.cache / "models--owner--tiny" / "refs" / "main").read_text(), commit)
        self.hub.requests.clear()
        out = self.ingot("run", "-m", NAME, "-p", "Hello", "-n", "2", "--json", HF_HUB_OFFLINE="1")
        self.assertEqual(len(json.loads(out)["token_ids"]), 2)
        self.assertEqual(self.hub.requests, [], "the cache needs no network")

    def test_name_fetches_and_path_wins(self):
        self.hub.add(NAME, model_files())
        self.assertIn("architecture", self.ingot("inspect", "-m", NAME))
        self.hub.requests.clear()
        tiny_model.make(self.folder / "owner" / "tiny")
        shutil.rmtree(self.cache)
        self.ingot("inspect", "-m", NAME)
        self.assertEqual(self.hub.requests, [])

    def test_shards_in_parallel_and_update(self):
        files = shards(5)
        self.hub.add(NAME, files)
        self.check(self.pull(), files, list(files))
        newer = {**files, "config.json": b'{"newer": 1}'}
        commit = self.hub.add(NAME, newer)
        self.hub.requests.clear()
        path = self.pull()
        self.assertEqual(path.name, commit)
        self.check(path, newer, list(newer))
        self.assertEqual(self.hub.seen("storage"), [], "unchanged files are not fetched again")

    def test_revision(self):
        files = shards(1)
        self.hub.add(NAME, files)
        older = {**files, "config.json": b'{"older": 1}'}
        commit = self.hub.add(NAME, older, revision="refs/pr/1")
        for revision in ("refs/pr/1", commit):
            self.check(self.pull(NAME + "@" + revision), older, list(older))
        self.assertIn("no revision nothing", self.refused("pull", NAME + "@nothing", expect=2))

    def test_gguf(self):
        data = random.Random(1).randbytes(5000)
        files = {"x-Q4_K_M.gguf": data, "x-Q8_0.gguf": data[::-1], "README.md": b""}
        self.hub.add(NAME, files)
        path = self.pull(NAME + ":q4_k_m")
        self.assertEqual(path.name, "x-Q4_K_M.gguf")
        self.check(path.parent, files, ["x-Q4_K_M.gguf"])
        self.pull(NAME + ":x-Q8_0.gguf")
        self.assertIn("Q4_K_M, Q8_0", self.refused("pull", NAME, expect=2))
        self.assertIn("no such GGUF", self.refused("pull", NAME + ":Q2_K", expect=2))
        names = [row["name"] for row in json.loads(self.ingot("list", "--json"))]
        self.assertEqual(names, [NAME + ":Q4_K_M", NAME + ":Q8_0"])
        self.ingot("rm", NAME + ":Q4_K_M")
        self.assertEqual(self.blobs(), [fake_hub.content_hash(data[::-1])])

    def test_list_and_rm(self):
        self.assertEqual(json.loads(self.ingot("list", "--json")), [])
        files = shards(2)
        commit = self.hub.add(NAME, files)
        self.pull()
        row, = json.loads(self.ingot("list", "--json"))
        self.assertEqual(row, {"name": NAME, "commit": commit, "revisions": ["main"], "complete": True,
                               "bytes": sum(map(len, files.values()))})
        self.assertIn(NAME, self.ingot("list"))
        self.ingot("rm", NAME)
        self.assertFalse((self.cache / "models--owner--tiny").exists())
        self.assertIn("ingot list", self.refused("rm", NAME, expect=2))

    # ---- tokens ----

    def test_token_stays_with_the_hub(self):
        files = shards(2)
        self.hub.add(NAME, files, token=SECRET)
        self.assertIn("HF_TOKEN", self.refused("pull", NAME))
        self.assertIn("does not accept the token", self.refused("pull", NAME, HF_TOKEN="hf_other"))
        self.hub.requests.clear()
        self.check(self.pull(HF_TOKEN=SECRET), files, list(files))
        self.assertTrue(all(r[3] == "Bearer " + SECRET for r in self.hub.seen("hub")))
        self.assertEqual(len(self.hub.seen("storage")), 2)
        self.assertTrue(all(r[3] is None for r in self.hub.seen("storage")), "the token left the hub")

    def test_token_file(self):
        self.hub.add(NAME, shards(1), token=SECRET)
        (self.folder / "home").mkdir()
        (self.folder / "home" / "token").write_text(SECRET + "\n")
        self.pull()

    def test_gated(self):
        self.hub.add(NAME, shards(1), token=SECRET, gated=True)
        for environment in ({}, {"HF_TOKEN": "hf_other"}):
            message = self.refused("pull", NAME, **environment)
            self.assertIn("gated: accept its terms at %s/%s" % (self.hub.url, NAME), message)

    def test_doctor_hides_the_token(self):
        out = self.ingot("doctor", HF_TOKEN=SECRET)
        self.assertIn("HF_TOKEN", out)

    # ---- what goes wrong ----

    def test_unknown_and_offline(self):
        self.assertIn("check the name", self.refused("run", "-m", "no/such", "-p", "x"))
        self.hub.add(NAME, shards(1))
        self.hub.requests.clear()
        self.assertIn("HF_HUB_OFFLINE", self.refused("run", "-m", NAME, "-p", "x", HF_HUB_OFFLINE="1"))
        self.assertEqual(self.hub.requests, [])
        self.assertFalse(self.cache.exists())
        self.hub.fail("GET /api", 1, fake_hub.status(404))
        self.assertIn("check the name", self.refused("pull", NAME, expect=2))

    def test_busy_server(self):
        files = shards(2)
        self.hub.add(NAME, files)
        self.hub.fail("GET /api", 1, fake_hub.status(503, Retry_After="0"))
        self.hub.fail("HEAD .*config", 1, fake_hub.status(500, Retry_After="0"))
        self.hub.fail("GET /[0-9a-f]{64}", 2, fake_hub.status(429, Retry_After="1"))
        start = time.monotonic()
        self.check(self.pull(), files, list(files))
        self.assertGreater(time.monotonic() - start, 0.9, "Retry-After counts")

    def test_truncation_is_continued(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail("GET /[0-9a-f]{64}", 2, fake_hub.truncated)
        self.check(self.pull(), files, list(files))
        self.assertEqual([r[4] for r in self.hub.seen("storage")], [None, "bytes=100000-", "bytes=150000-"])

    def test_server_without_ranges(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.ranges = False
        self.hub.fail("GET /[0-9a-f]{64}", 1, lambda handler, data: fake_hub.truncated(handler, data, keep=1234))
        self.check(self.pull(), files, list(files))

    def test_wrong_hash(self):
        files = shards(1)
        self.hub.add(NAME, files)
        self.hub.fail("GET /[0-9a-f]{64}", 2, fake_hub.wrong_bytes)
        self.assertIn("another hash", self.refused("pull", NAME))
        self.assertFalse((self.cache / "models--owner--tiny" / "refs" / "main").exists())
        self.assertNotIn(fake_hub.content_hash(files["model-00001-of-00001.safetensors"]), self.blobs())
        self.hub.fail("GET /[0-9a-f]{64}", 1, fake_hub.wrong_bytes)
        self.check(self.pull(), files, list(files))  # once is forgiven

    def test_wrong_small_file(self):
        self.hub.add(NAME, shards(1))
        digest = fake_hub.content_hash(b"{}")
        self.hub.fail("HEAD .*config.json", 1, lambda handler, data: handler.reply(
            200, b"[]", ETag='"%s"' % digest))
        self.hub.repos[NAME]["commits"][self.hub.repos[NAME]["revisions"]["main"]]["config.json"] = b"[]"
        self.hub.repos[NAME]["commits"][self.hub.repos[NAME]["revisions"]["main"]]["tokenizer.json"] = b"[]"
        self.hub.fail("HEAD .*tokenizer.json", 1, lambda handler, data: handler.reply(
            200, b"[]", ETag='"%s"' % digest))
        self.assertIn("another hash", self.refused("pull", NAME))

    def test_hostile_listing(self):
        self.hub.add(NAME, {**shards(1), "../../evil.json": b"x"})
        self.assertIn("leads out of the folder", self.refused("pull", NAME))
        self.hub.fail("GET /api", 1, lambda handler, data: handler.reply(200, b"<html>"))
        self.assertIn("is HF_ENDPOINT a hub?", self.refused("pull", NAME))

    def wait_for_bytes(self, count):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for path in self.cache.glob("models--owner--tiny/blobs/*.incomplete"):
                if path.stat().st_size >= count:
                    return
            time.sleep(0.02)
        self.fail("no bytes came")

    def test_killed_then_resumed(self):
        files = shards(1)
        self.hub.add(NAME, files)
        never = threading.Event()
        self.addCleanup(never.set)
        self.hub.fail("GET /[0-9a-f]{64}", 1, fake_hub.stall_after(70_000, never))
        process = self.start("pull", NAME)
        self.wait_for_bytes(70_000)
        process.kill()
        process.communicate()
        self.assertIn("HF_HUB_OFFLINE", self.refused("run", "-m", NAME, "-p", "x", HF_HUB_OFFLINE="1"))
        self.hub.requests.clear()
        self.check(self.pull(), files, list(files))
        self.assertEqual([r[4] for r in self.hub.seen("storage")], ["bytes=70000-"])
        self.assertEqual(self.blobs(".incomplete"), [])

    def test_stall_is_continued(self):
        files = shards(1)
        self.hub.add(NAME, files)
        never = threading.Event()
        self.addCleanup(never.set)
        self.hub.fail("GET /[0-9a-f]{64}", 1, fake_hub.stall_after(70_000, never))
        self.check(self.pull(HF_HUB_DOWNLOAD_TIMEOUT="1"), files, list(files))

    def test_two_processes(self):
        files = shards(4)
        self.hub.add(NAME, files)
        go = threading.Event()
        self.addCleanup(go.set)
        self.hub.fail("GET /[0-9a-f]{64}", 1, fake_hub.stall_after(50_000, go))
        first = self.start("pull", NAME)
        self.wait_for_bytes(50_000)
        second = self.start("pull", NAME)
        self.assertIn("another process is fetching it", second.stderr.readline())
        self.assertIsNone(second.poll())
        go.set()
        results = [process.communicate(timeout=60) for process in (first, second)]
        self.assertEqual([first.returncode, second.returncode], [0, 0], results)
        self.assertEqual(results[0][0], results[1][0])
        self.check(pathlib.Path(results[0][0].strip()), files, list(files))
        self.assertEqual(len(self.hub.seen("storage")), 5, "each file once, and one continued")


if __name__ == "__main__":
    fixture.main()
