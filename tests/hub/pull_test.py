#!/usr/bin/env python3
"""`-m NAME`, `ingot pull`, `list` and `rm` against a server that behaves like the hub."""

import json
import os
import pty
import random
import shutil
import subprocess

import fake_hub
from hub_case import BINARY, LARGE_FILE, NAME, SECRET, HubCase, fixture, model_files, shards, tiny_model


class PullTest(HubCase):
    def test_pull_and_run(self):
        files = model_files()
        commit = self.hub.add(NAME, files)
        path = self.pull()
        self.assertEqual(path, self.repo / "snapshots" / commit)
        self.check(path, files, ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                 "model.safetensors"])
        self.assertEqual((self.repo / "refs" / "main").read_text(), commit)
        self.hub.requests.clear()
        out = self.ingot("run", "-m", NAME, "-p", "Hello", "-n", "2", "--temp", "0", "--json", HF_HUB_OFFLINE="1")
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

    def test_serve(self):
        self.hub.add(NAME, model_files())
        with fixture.Server("--threads", "1", model=NAME, env=self.environment()) as server:
            models = json.loads(server.get("/v1/models")[1])
            self.assertEqual(models["data"][0]["id"], NAME)
        self.assertNotEqual(self.hub.requests, [])

    def test_shards_in_parallel_and_update(self):
        files = shards(5)
        self.hub.add(NAME, files)
        self.check(self.pull(), files)
        newer = {**files, "config.json": b'{"newer": 1}'}
        commit = self.hub.add(NAME, newer)
        self.hub.requests.clear()
        path = self.pull()
        self.assertEqual(path.name, commit)
        self.check(path, newer)
        self.assertEqual(self.hub.seen("storage"), [], "unchanged files are not fetched again")

    def test_revision(self):
        files = shards(1)
        self.hub.add(NAME, files)
        older = {**files, "config.json": b'{"older": 1}'}
        commit = self.hub.add(NAME, older, revision="refs/pr/1")
        for revision in ("refs/pr/1", commit):
            self.check(self.pull(NAME + "@" + revision), older)
        self.assertIn("no revision nothing", self.refused("pull", NAME + "@nothing", expect=2))

    def test_renamed(self):
        files = shards(1)
        self.hub.add("new/home", files, token=SECRET)
        self.hub.renamed[NAME] = "new/home"
        path = self.pull(HF_TOKEN=SECRET)
        self.assertEqual(path.parent.parent, self.repo)
        self.check(path, files)

    def test_storage_at_the_hub_itself(self):
        files = shards(2)
        self.hub.add(NAME, files)
        self.hub.storage_url = self.hub.url
        self.check(self.pull(), files)

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
        self.assertEqual([row["name"] for row in self.listed()], [NAME + ":Q4_K_M", NAME + ":Q8_0"])
        self.ingot("rm", NAME + ":Q4_K_M")
        self.assertEqual(self.blobs(), [fake_hub.content_hash(data[::-1])])
        self.ingot("rm", NAME + ":Q8_0")
        self.assertFalse(self.repo.exists(), "with its last model a repository goes")

    def test_gguf_runs(self):
        data = (fixture.ROOT / "tests" / "fixtures" / "models" / "gguf-q4_0-llama3" / "model.gguf").read_bytes()
        self.hub.add(NAME, {"dir/x.Q4_0.gguf": data, "dir/x.Q8_0.gguf": b"x" * 2000})
        out = self.ingot("run", "-m", NAME + ":Q4_0", "--ids", "1,2,3", "-n", "1", "--temp", "0", "--json")
        self.assertEqual(len(json.loads(out)["token_ids"]), 1)

    def test_list_and_rm(self):
        self.assertEqual(self.listed(), [])
        files = shards(2)
        commit = self.hub.add(NAME, files)
        self.pull()
        row, = self.listed()
        self.assertEqual(row, {"name": NAME, "commit": commit, "revisions": ["main"], "complete": True,
                               "bytes": sum(map(len, files.values()))})
        self.assertIn(NAME, self.ingot("list"))
        self.ingot("rm", NAME)
        self.assertFalse(self.repo.exists())
        self.assertIn("ingot list", self.refused("rm", NAME, expect=2))

    # ---- tokens ----

    def test_token_stays_with_the_hub(self):
        files = shards(2)
        self.hub.add(NAME, files, token=SECRET)
        self.assertIn("HF_TOKEN", self.refused("pull", NAME))
        self.assertIn("does not accept the token", self.refused("pull", NAME, HF_TOKEN="hf_other"))
        self.hub.requests.clear()
        self.check(self.pull(HF_TOKEN=SECRET), files)
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
        self.assertFalse(self.repo.exists(), "a refused model leaves nothing behind")
        self.pull(HF_TOKEN=SECRET)

    def test_doctor_hides_the_token(self):
        out = self.ingot("doctor", HF_TOKEN=SECRET)
        self.assertIn("HF_TOKEN", out)
        self.assertIn("HF_HUB_OFFLINE", self.refused("doctor", HF_HUB_OFFLINE="perhaps", expect=2))

    # ---- what is shown ----

    def test_progress_in_lines(self):
        files = shards(2)
        files["tokenizer_config.json"] = files["config.json"]  # the same content is fetched once
        self.hub.add(NAME, files)
        process = self.start("pull", NAME)
        err = process.communicate(timeout=60)[1]
        self.assertNotIn("\r", err)
        self.assertNotIn("\x1b", err)
        first, *_, last = err.splitlines()
        self.assertRegex(first, r"^ingot: owner/tiny: fetching 390\.\d KiB in 5 files$")
        self.assertRegex(last, r"^ingot: 100%  390\.\d KiB of 390\.\d KiB, \S+ [KMG]iB/s$")

    def test_progress_on_a_terminal(self):
        self.hub.add(NAME, shards(2))
        ours, theirs = pty.openpty()
        process = subprocess.Popen([BINARY, "pull", NAME], env=self.environment(), stdin=theirs, stdout=subprocess.PIPE,
                                   stderr=theirs)
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:  # the other end is closed
            pass
        out = process.communicate(timeout=60)[0]
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        self.assertRegex(shown.decode(), "\r\\[█{24}\\] 100%  ")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the bar goes away")
        self.assertEqual(out.decode().count("\n"), 1, "the path alone is on standard output")

    def test_long_waits_are_announced(self):
        self.hub.add(NAME, shards(1))
        self.hub.fail(LARGE_FILE, 1, fake_hub.status(429, Retry_After="2"))
        process = self.start("pull", NAME)
        self.assertIn("the hub answered 429; trying again in 2 s", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    fixture.main()
