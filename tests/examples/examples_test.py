"""The programs of examples/: those in C++ built against an installed Ingot (find_package(Ingot) works, and they say what `ingot run` says); the agent with
the default model."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "server"))
import server as fixture  # noqa: E402

MODEL = os.environ["INGOT_DEFAULT_MODEL"]
PROMPTS = ["The capital of France is", "Water boils at"]


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{command} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


class ExamplesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder, cmake = pathlib.Path(cls.folder.name), os.environ["CMAKE"]
        run(cmake, "--install", os.environ["INGOT_BUILD"], "--prefix", folder / "ingot", "--component", "sdk")
        cls.build = folder / "build"
        run(cmake, "-S", ROOT / "examples", "-B", cls.build, f"-DCMAKE_PREFIX_PATH={folder / 'ingot'}")
        run(cmake, "--build", cls.build, "--parallel", "2")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def expected(self, prompt, tokens):
        told = run(os.environ["INGOT_BINARY"], "run", "-m", MODEL, "-p", prompt, "-n", tokens, "--temperature", 0, "--json")
        return prompt + json.loads(told)["text"]

    def test_complete(self):
        self.assertEqual(run(self.build / "complete", MODEL, PROMPTS[0], 12), self.expected(PROMPTS[0], 12) + "\n")

    def test_orchestrate(self):
        wanted = "".join(self.expected(prompt, 16) + "\n" for prompt in PROMPTS)
        self.assertEqual(run(self.build / "orchestrate", MODEL, *PROMPTS), wanted)

    def test_a_model_that_is_not_there(self):
        done = subprocess.run([self.build / "complete", "/nowhere.gguf", "x"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere.gguf: no such file", done.stderr)


class AgentTest(unittest.TestCase):
    def test_it_finishes_its_task(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "apples.txt").write_text("There are 17 apples.")
            (folder / "pears.txt").write_text("There are 25 pears.")
            with fixture.Server("--threads", 1, "--max-model-len", 2048, model=MODEL) as server:
                told = run(sys.executable, ROOT / "examples" / "agent.py", "--url", server.url + "/v1", "--folder", folder,
                           "How many apples and pears are there together?")
        self.assertIn("17 plus 25 is 42", told, "it has read the files, and taken the numbers from them")
        self.assertIn("42", told.splitlines()[-1], told)


if __name__ == "__main__":
    unittest.main()
