#!/usr/bin/env python3
"""`ingot serve --tune`, over a GPU that only compiles: what is timed is a kernel more in a folder."""

import json
import pathlib
import tempfile
import time
import unittest
import urllib.request

import server as fixture

MODEL = fixture.ROOT / "tests/fixtures/models/llama-bf16-llama3"


def serve(folder, tune):
    # Sizes for which the engine's tests have the kernels compiled.
    return fixture.Server("--device", "cuda", "--tune", tune, "--max-seqs", 2, "--max-model-len", 128, "--kv-blocks", 16,
                          "--max-step-tokens", 4, model=MODEL, start_s=240,
                          env={"SOFTMETAL_COMPILE_ONLY": "1", "SOFTMETAL_PREBUILT": str(folder)})


def kernels(folder):
    return {path.name for path in folder.iterdir()}


def ask(server):
    body = {"prompt": [1, 2, 3], "max_tokens": 3, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return reply.status


class TuneTest(unittest.TestCase):
    def test_off_times_nothing_and_idle_does(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            with serve(folder, "off") as server:
                loaded = kernels(folder)
                self.assertTrue(loaded)
                for _ in range(3):  # between them there is nothing to do
                    self.assertEqual(ask(server), 200)
            self.assertEqual(kernels(folder), loaded, "with --tune off")
            with serve(folder, "idle") as server:
                end = time.monotonic() + 120
                while kernels(folder) == loaded and time.monotonic() < end:
                    time.sleep(0.05)
                self.assertEqual(ask(server), 200)
            self.assertGreater(kernels(folder), loaded, "with --tune idle")


if __name__ == "__main__":
    fixture.main()
