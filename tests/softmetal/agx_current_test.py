"""Whether the report on Apple's registers is of the kernels there are, and says of none that it spills or has too many threads."""

import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "softmetal/agx"))

import kernels  # noqa: E402
import report  # noqa: E402
import reported  # noqa: E402
import table  # noqa: E402


class CurrentTest(unittest.TestCase):
    def test_the_report_is_of_these_kernels(self):
        with tempfile.TemporaryDirectory() as name:
            folder, work = pathlib.Path(name) / "kernels", pathlib.Path(name)
            folder.mkdir()
            report.gather(pathlib.Path(os.environ["INGOT_BINARY"]), folder, work)
            found = reported.differences(kernels.wanted(folder), reported.read())
        self.assertFalse(found, f"docs/registers.md is not of the kernels there are: {reported.RENEW}")

    def test_no_kernel_spills_or_has_too_many_threads(self):
        lines = table.from_markdown((ROOT / report.WHOLE).read_text())
        self.assertEqual(table.faults(lines), [], f"after a change of the kernels {reported.RENEW}")
        self.assertEqual({line["kernel"] for line in lines}, set(reported.read()), reported.RENEW)
        self.assertTrue(all(line["bytes"] <= 32 << 10 for line in lines))


def kernel(**changes):
    return {"kernel": "a", "constants": {"A_ROWS": "8u", "A_BIAS": "true"}, "threads": (64, 1, 1), "bytes": 0,
            "source": '# 12 "a.metal"\nvoid a() {\n  b();\n}\n'} | changes


class SumsTest(unittest.TestCase):
    def test_what_counts(self):
        said = reported.sums([kernel()])
        self.assertEqual(reported.differences([kernel()], said), [])
        self.assertEqual(reported.differences([kernel(source='# 99 "b.metal"\nvoid a()   {\n\n b(); }')], said), [], "the same words elsewhere")
        for changes in ({"source": "void a() { c(); }"}, {"threads": (128, 1, 1)}, {"bytes": 16}, {"constants": {"A_ROWS": "16u", "A_BIAS": "true"}}):
            self.assertEqual(reported.differences([kernel(**changes)], said), ["a is not what it was"], changes)
        self.assertEqual(reported.differences([kernel(), kernel(threads=(32, 1, 1))], said), ["a is not what it was"], "a variant more")
        self.assertEqual(reported.differences([kernel(kernel="b")], said), ["b is not in the report", "a is in the report alone"])


if __name__ == "__main__":
    unittest.main()
