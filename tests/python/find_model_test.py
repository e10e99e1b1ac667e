"""Models by name from Python, against a local server that behaves like the hub."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import ingot
from steps import MODELS

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "hub"))
import fake_hub  # noqa: E402

FILES = {
    path.name: path.read_bytes()
    for path in (MODELS / "qwen3-bf16").iterdir()
    if path.name in ("config.json", "model.safetensors")
}
FILES["tokenizer.json"] = b"{}"  # a checkpoint without one is not complete


class FindModelTest(unittest.TestCase):
    def setUp(self):
        self.hub = fake_hub.Hub()
        self.addCleanup(self.hub.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and not k.lower().endswith("_proxy")}
        environment = mock.patch.dict(
            os.environ, {**kept, "HF_ENDPOINT": self.hub.url, "HF_HOME": folder.name}, clear=True
        )
        environment.start()
        self.addCleanup(environment.stop)

    def test_fetched_once_and_loaded(self):
        commit = self.hub.add("owner/tiny", FILES)
        path = pathlib.Path(ingot.find_model("owner/tiny"))
        self.assertEqual(path.name, commit)
        self.assertEqual((path / "config.json").read_bytes(), FILES["config.json"])
        engine = ingot.Engine(str(path), device="cpu", max_seqs=1)
        self.assertGreater(engine.limits.vocab, 0)
        asked = len(self.hub.requests)
        self.assertEqual(ingot.find_model("owner/tiny"), str(path))
        self.assertEqual(len(self.hub.requests), asked, "what is in the cache needs no network")

    def test_what_is_no_name_is_left_alone(self):
        for path in (str(MODELS / "qwen3-bf16"), "./no/such", "no_such.gguf", "/no/such/folder", "a/b/c"):
            self.assertEqual(ingot.find_model(path), path)
        self.assertEqual(self.hub.requests, [])

    def test_a_name_nobody_has_is_an_error_that_says_so(self):
        with self.assertRaisesRegex(ingot.Error, "owner/nothing: .*check the name"):
            ingot.find_model("owner/nothing")
        with self.assertRaisesRegex(ingot.Error, "owner/nothing"):
            ingot.LLM("owner/nothing")


if __name__ == "__main__":
    unittest.main()
