"""JSON-Schema-Test-Suite, draft 2020-12, required and format tests: the grammar of each schema is fed each instance as text, compact, with
white space, and without escapes. What is declined is declined for a reason that is written here."""

import collections
import json
import pathlib
import subprocess
import unittest

import decider

ROOT = pathlib.Path(__file__).parents[2]

# Why a schema of the suite is declined: the end of the place, or words of the message.
DECLINED = {
    "$dynamicRef": "what it refers to depends on who asks",
    "is not in this schema": "a reference to another document",
    "uniqueItems": "no grammar remembers every item",
    "multipleOf": "more states than are kept",
    "is regex": "what is a regular expression is not regular",
    "is idn-hostname": "its rules need tables of scripts",
    "unevaluatedItems is not supported beside contains": "the items that matched are no prefix",
    "minProperties of more than 1": "free names may be written twice",
    "overlap in ways too many": "over the budget of alternatives",
}
# Decided against the suite, and why.
EXPLAINED = {
    ("vocabulary.json", "no validation: invalid number, but it still validates"): "a metaschema elsewhere takes the assertions away",
}


def cases():
    """(file, description, schema, tests, whether formats are asserted) of each case."""
    suite = pathlib.Path(subprocess.run([ROOT / "scripts/fetch_json_schema_suite.sh", "--path"], capture_output=True, text=True,
                                        check=True).stdout.strip()) / "tests/draft2020-12"
    if not suite.is_dir():
        raise unittest.SkipTest("JSON-Schema-Test-Suite is missing: run scripts/fetch_json_schema_suite.sh")
    for file in sorted(suite.glob("*.json")) + sorted(suite.glob("optional/format/*.json")):
        for case in json.loads(file.read_text()):
            yield file.name, case["description"], case["schema"], case["tests"], file.parent.name == "format"


def texts_of(value):
    return [json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2), json.dumps(value, ensure_ascii=False)]


class SuiteTest(unittest.TestCase):
    def test_every_supported_schema_decides_as_the_suite_says(self):
        found = list(cases())
        answers = decider.decide([{"schema": schema, "formats": formats, "texts": [text for test in tests for text in texts_of(test["data"])]}
                                  for _, _, schema, tests, formats in found])
        wrong, unexplained, decided, declined = [], [], 0, collections.Counter()
        for (file, description, _, tests, _), answer in zip(found, answers):
            if "error" in answer:
                if "is satisfied by no value" in answer["error"]:
                    wrong += [(file, description, test["description"]) for test in tests if test["valid"]]
                    decided += len(tests)
                    continue
                reason = next((reason for reason in DECLINED if reason in answer["error"]), None)
                if reason is None:
                    unexplained.append((file, description, answer["error"]))
                declined[reason] += len(tests)
                continue
            for i, test in enumerate(tests):
                if answer["accepts"][3 * i:3 * i + 3] != [test["valid"]] * 3 and (file, test["description"]) not in EXPLAINED:
                    wrong.append((file, description, test["description"], answer["accepts"][3 * i:3 * i + 3]))
                decided += 1
        self.assertEqual(wrong, [])
        self.assertEqual(unexplained, [])
        self.assertGreater(decided, 1500, declined)


if __name__ == "__main__":
    unittest.main()
