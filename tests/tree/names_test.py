"""pytest imports tests by their bare names, so that no two files may share one."""

import collections
import unittest
from pathlib import Path


class NamesTest(unittest.TestCase):
    def test_each_module_has_a_name_of_its_own(self):
        names = collections.Counter(path.name for path in Path(__file__).parents[1].rglob("*.py"))
        self.assertEqual([name for name, count in names.items() if count > 1], [])


if __name__ == "__main__":
    unittest.main()
