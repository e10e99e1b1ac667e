#!/usr/bin/env python3
"""The cache against Hugging Face's own library, both ways. By hand, with a Python that has it:

    pip install huggingface_hub
    INGOT_BINARY=build/bin/ingot python tests/hub/huggingface_check.py
"""

import json
import os
import subprocess
import sys
import time
import unittest

import fake_hub
from hub_case import NAME, HubCase, model_files, shards

LIBRARY = """
import json, sys
import huggingface_hub as library
name, call = sys.argv[1], sys.argv[2]
if call == "scan":
    info = library.scan_cache_dir()
    print(json.dumps({"warnings": [str(w) for w in info.warnings], "size": info.size_on_disk,
                      "repos": {r.repo_id: sorted(ref for v in r.revisions for ref in v.refs) for r in info.repos}}))
elif call == "file":
    print(library.try_to_load_from_cache(name, sys.argv[3]))
elif call == "delete":
    info = library.scan_cache_dir()
    info.delete_revisions(*[v.commit_hash for r in info.repos for v in r.revisions]).execute()
else:
    print(library.snapshot_download(name, local_files_only=call == "local",
                                    allow_patterns=sys.argv[3:] or None))
"""


class HuggingFaceCheck(HubCase):
    def library(self, call, *arguments, **environment):
        process = subprocess.run([sys.executable, "-c", LIBRARY, NAME, call, *arguments], text=True, capture_output=True,
                                 env=self.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", **environment))
        self.assertEqual(process.returncode, 0, process.stderr)
        return process.stdout.strip()

    def scan(self):
        found = json.loads(self.library("scan"))
        self.assertEqual(found["warnings"], [])
        return found

    def test_theirs_is_found_here(self):
        self.hub.add(NAME, model_files())
        path = self.library("fetch")
        self.hub.requests.clear()
        out = self.ingot("run", "-m", NAME, "-p", "Hello", "-n", "2", "--temp", "0", "--json", HF_HUB_OFFLINE="1")
        self.assertEqual(len(json.loads(out)["token_ids"]), 2)
        self.assertEqual(self.hub.requests, [])
        row, = self.listed()
        self.assertEqual((row["name"], row["revisions"], row["complete"]), (NAME, ["main"], True))
        self.assertEqual(str(self.pull()), path)
        self.assertEqual(self.hub.seen("storage"), [], "what they fetched is not fetched again")
        self.scan()

    def test_ours_is_found_there(self):
        files = model_files()
        self.hub.add(NAME, files)
        path = self.pull()
        self.hub.requests.clear()
        self.assertEqual(self.library("local"), str(path))
        self.assertEqual(self.library("local", HF_HUB_OFFLINE="1"), str(path))
        self.assertEqual(self.library("file", "config.json"), str(path / "config.json"))
        self.assertEqual(self.hub.requests, [])
        found = self.scan()
        self.assertEqual(found["repos"], {NAME: ["main"]})
        self.assertEqual(found["size"], self.listed()[0]["bytes"])
        self.library("fetch")  # completes it; our files are not fetched again
        fetched = {r[2].strip("/") for r in self.hub.seen("storage", "GET")}
        self.assertEqual(fetched, {fake_hub.content_hash(files[n]) for n in ("pytorch_model.bin", "onnx/model.onnx")})
        self.scan()

    def test_theirs_in_part_is_completed(self):
        files = shards(3)
        self.hub.add(NAME, files)
        self.library("fetch", "config.json", "model-00002*")
        self.assertFalse(self.listed()[0]["complete"])
        self.assertIn("not complete", self.refused("inspect", "-m", NAME, HF_HUB_OFFLINE="1"))
        self.check(self.pull(), files)
        self.assertEqual(len(self.hub.seen("storage", "GET")), 3)
        self.scan()

    def test_every_state_can_be_scanned(self):
        self.hub.add(NAME, shards(2))
        self.stall(70_000)
        process = self.start("pull", NAME)
        self.wait_for_bytes(70_000)
        self.scan()
        process.kill()
        process.communicate()
        self.scan()
        self.pull()
        self.hub.add(NAME, {**shards(2), "config.json": b'{"newer": 1}'})
        self.pull()
        self.scan()
        self.hub.add(NAME, {"x-Q4_0.gguf": b"4" * 2000, "x-Q8_0.gguf": b"8" * 2000}, revision="gguf")
        self.pull(NAME + "@gguf:Q4_0")
        self.pull(NAME + "@gguf:Q8_0")
        self.scan()
        self.ingot("rm", NAME + "@gguf:Q4_0")
        self.assertEqual(self.scan()["repos"], {NAME: ["gguf", "main"]})
        self.ingot("rm", NAME + "@main")
        self.assertEqual(self.scan()["repos"], {NAME: ["gguf"]})
        self.library("delete")
        self.assertEqual(self.listed(), [])

    def test_both_at_once(self):
        files = shards(2)
        self.hub.add(NAME, files)
        go = self.stall(50_000)
        ours = self.start("pull", NAME)
        self.wait_for_bytes(50_000)
        theirs = subprocess.Popen([sys.executable, "-c", LIBRARY, NAME, "fetch"], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env=self.environment(HF_HUB_DISABLE_XET="1"))
        time.sleep(3)
        self.assertIsNone(theirs.poll(), "the library waits for our lock")
        go.set()
        results = [process.communicate(timeout=60) for process in (ours, theirs)]
        self.assertEqual([ours.returncode, theirs.returncode], [0, 0], results)
        self.assertEqual(results[0][0].strip(), results[1][0].strip())
        self.assertEqual(len(self.hub.seen("storage", "GET")), 3, "each file once, and one continued")
        self.scan()


if __name__ == "__main__":
    os.environ.setdefault("INGOT_DEFAULT_MODEL", "unused")
    unittest.main()
