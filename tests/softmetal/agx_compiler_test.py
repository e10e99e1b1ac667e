"""Mesa's compiler for Apple GPUs, through the report: a kernel made to spill shows up. Part of `make soak`: the compiler takes minutes to build."""

import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class AgxCompilerTest(unittest.TestCase):
    def report(self, only):
        return subprocess.run([ROOT / "scripts/agx_report.sh", "--metal", ROOT / "softmetal/agx/samples/spills.metal", "--only", only],
                              capture_output=True, text=True)

    def test_a_kernel_that_spills_shows_up(self):
        done = self.report("spills")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertRegex(done.stderr, r"fault: spills: [1-9]\d* : [1-9]\d* spills : fills")

    def test_one_that_does_not_is_let_through(self):
        done = self.report("fits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 0 : 0 |", done.stdout)


if __name__ == "__main__":
    unittest.main()
