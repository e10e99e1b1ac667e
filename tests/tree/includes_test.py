"""Who may include whom: docs/architecture.md says it, and the tree keeps to it."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_includes  # noqa: E402

TABLE = """
| folder | what | may include |
|---|---|---|
| `src/core/` | basics | |
| `src/model/` | models | `core/`, `backend/backend.h` |
| `src/backend/` | devices | `core/` |
| `src/backend/cpu/` | one of them | `backend/backend.h` |
"""


class IncludesTest(unittest.TestCase):
    def faults(self, **files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {"docs/architecture.md": TABLE, **files}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return [f"{path}:{line}: {message}" for path, line, message in check_includes.faults(root)]

    def test_the_tree_keeps_to_its_table(self):
        self.assertEqual(check_includes.faults(ROOT), [])

    def test_what_the_table_allows(self):
        text = '#include <vector>\n#include "core/error.h"\n#include "model/b.h"\n#include "backend/backend.h"\n'
        self.assertEqual(self.faults(**{"src/model/a.cc": text}), [])

    def test_a_wrong_include_is_named(self):
        text = '#pragma once\n\n#include "core/error.h"\n#include <model/config.h>\n'
        self.assertEqual(self.faults(**{"src/backend/a.h": text}), ["src/backend/a.h:4: src/backend/ may not include model/config.h"])

    def test_one_header_is_not_its_folder(self):
        text = '  # include "backend/cpu/isa.h"\n'
        self.assertEqual(self.faults(**{"src/model/a.cc": text}), ["src/model/a.cc:1: src/model/ may not include backend/cpu/isa.h"])
        self.assertEqual(self.faults(**{"src/backend/cpu/a.cc": text}), [])

    def test_the_headers_of_a_folder_without_those_below(self):
        table = TABLE.replace("`backend/backend.h` |", "`backend/*` |")
        files = {"docs/architecture.md": table, "src/model/a.cc": '#include "backend/op.h"\n'}
        self.assertEqual(self.faults(**files), [])
        files["src/model/a.cc"] = '#include "backend/cpu/isa.h"\n'
        self.assertEqual(len(self.faults(**files)), 1)

    def test_a_folder_below_has_rules_of_its_own(self):
        text = '#include "core/error.h"\n'
        self.assertEqual(self.faults(**{"src/backend/a.cc": text}), [])
        self.assertEqual(len(self.faults(**{"src/backend/cpu/a.cc": text})), 1)

    def test_a_folder_that_the_table_does_not_name(self):
        self.assertEqual(len(self.faults(**{"src/new/a.cc": ""})), 1)


if __name__ == "__main__":
    unittest.main()
