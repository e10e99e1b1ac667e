"""Submissions and waits are counted where Metal is called, so one file of the Metal device calls it."""

import pathlib
import re
import unittest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "src" / "backend" / "metal"
# A residency set has a commit() of its own, which submits nothing.
CALL = re.compile(r"(?<!residency_)->\s*(?:commit|waitUntilCompleted|waitUntilScheduled|status)\s*\(")


def calls(text):
    return [line.strip() for line in text.splitlines() if CALL.search(line)]


class MetalCallsTest(unittest.TestCase):
    def test_one_file_submits_and_waits(self):
        files = [path for path in FOLDER.rglob("*") if path.suffix in (".h", ".cc")]
        self.assertGreater(len(files), 30)
        found = {path.name: calls(path.read_text()) for path in files}
        self.assertEqual(
            {name: lines for name, lines in found.items() if lines},
            {"commands.h": ["commands->commit();", "commands->waitUntilCompleted();"]},
        )

    def test_what_counts_as_a_call(self):
        for line in ("x->commit();", "ring.commands->waitUntilCompleted();", "c-> waitUntilScheduled()", "if (c->status() == 4)"):
            self.assertEqual(calls(line), [line])
        for line in ("residency_->commit();", "commit(commands, counters_);", "memory.commit_residency();", "x->committed();"):
            self.assertEqual(calls(line), [])


if __name__ == "__main__":
    unittest.main()
