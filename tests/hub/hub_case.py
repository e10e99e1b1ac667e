"""What the tests of models by name share: a hub of their own, a cache folder, and the program."""

import contextlib
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
LARGE_FILE = "GET /[0-9a-f]{64}"  # pattern of a request for one, at the storage


def model_files():
    """A checkpoint that loads, with files nobody needs."""
    with tempfile.TemporaryDirectory() as folder:
        files = {path.name: path.read_bytes() for path in tiny_model.make(folder).iterdir()}
    files.update({"README.md": b"hello", "pytorch_model.bin": b"pickle" * 1000, "onnx/model.onnx": b"x" * 5000})
    return files


def shards(count, size=200_000):
    """Files that look like a model, all of them needed."""
    source = random.Random(7)
    names = ["model-%05d-of-%05d.safetensors" % (i + 1, count) for i in range(count)]
    files = {name: source.randbytes(size) for name in names}
    files["model.safetensors.index.json"] = json.dumps({"weight_map": {str(i): n for i, n in enumerate(names)}}).encode()
    files.update({"config.json": b"{}", "tokenizer.json": b"[{}]"})
    return files


class HubCase(unittest.TestCase):
    def setUp(self):
        self.hub = fake_hub.Hub()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ingot-hub-"))
        self.cache = self.folder / "home" / "hub"
        self.repo = self.cache / "models--owner--tiny"

    def tearDown(self):
        self.hub.close()
        shutil.rmtree(self.folder)

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("HF_", "SSL_")) and not k.lower().endswith("_proxy")}
        return {**kept, "HF_ENDPOINT": self.hub.url, "HF_HOME": str(self.folder / "home"), **more}

    def start(self, *arguments, options=None, **environment):
        return subprocess.Popen([BINARY, *arguments], env=self.environment(**environment), cwd=self.folder, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **(options or {}))

    def ingot(self, *arguments, expect=0, **environment):
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, expect, (arguments, out, err))
        self.assertNotIn(SECRET, out + err)
        return out if expect == 0 else err

    def refused(self, *arguments, expect=1, **environment):
        """The one line that says why; only progress comes before it."""
        lines = self.ingot(*arguments, expect=expect, **environment).splitlines()
        self.assertTrue(all(": fetching " in line or "; trying again in " in line or "% " in line for line in lines[:-1]),
                        lines)
        return lines[-1]

    def pull(self, name=NAME, **environment):
        return pathlib.Path(self.ingot("pull", name, **environment).strip())

    def check(self, path, files, wanted=None):
        """The snapshot has exactly these files, with their bytes, as links to blobs named by their hash."""
        wanted = sorted(files if wanted is None else wanted)
        self.assertEqual(sorted(str(p.relative_to(path)) for p in path.rglob("*") if not p.is_dir()), wanted)
        for name in wanted:
            self.assertEqual((path / name).read_bytes(), files[name])
            self.assertTrue((path / name).is_symlink())
            self.assertFalse(os.readlink(path / name).startswith("/"))
            self.assertEqual((path / name).resolve().name, fake_hub.content_hash(files[name]))

    def blobs(self, ending=""):
        return sorted(p.name for p in (self.repo / "blobs").glob("*" + ending))

    def listed(self):
        return [row for row in json.loads(self.ingot("list", "--json")) if not row.get("default")]

    def wait_for_bytes(self, count):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for path in self.repo.glob("blobs/*.incomplete"):
                with contextlib.suppress(FileNotFoundError):  # it got its name meanwhile
                    if path.stat().st_size >= count:
                        return
            time.sleep(0.02)
        self.fail("no bytes came")

    def stall(self, count):
        """The next large file stops after so many bytes, until the event that is given back is set."""
        event = threading.Event()
        self.addCleanup(event.set)
        self.hub.fail(LARGE_FILE, 1, fake_hub.stall_after(count, event))
        return event
