"""The chat page in a real browser, one for all tests.

  scripts/python_test.sh tests/server/web/page_test.py                                  all of them
  ... page_test.py -k formulas -k queue                                                 those whose names contain one of these
  ... page_test.py --server http://127.0.0.1:8000 -k Served                             before a server that runs
  ... page_test.py --screenshots docs/images                                            pictures instead of tests
"""

import argparse
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import browser  # noqa: E402
import page_case  # noqa: E402
import server  # noqa: E402

# What asks only the mock comes first: it is the cheapest.
MODULES = ["basic_cases", "compose_cases", "text_cases", "look_cases", "server_cases", "wall_cases"]
SKIPPED = 77  # ctest shows it as skipped


def main():
    parser = argparse.ArgumentParser(description="tests of the chat page")
    parser.add_argument("--page", default="build/src/server/web", help="folder with the page, for the mock")
    parser.add_argument("--server", help="address of a running server, for the tests of one")
    parser.add_argument("--screenshots", help="write pictures into this folder instead of testing")
    parser.add_argument("-k", action="append", help="only tests whose name contains this")
    arguments = parser.parse_args()
    page_case.FOLDER = arguments.page
    if arguments.server:
        os.environ["INGOT_PAGE_SERVER"] = arguments.server
    if not all(browser.binaries()):
        missing = "chromium and chromedriver are needed (Debian: apt-get install chromium chromium-driver)"
        if os.environ.get("INGOT_ALLOW_SKIP") == "1":
            print("skipped: " + missing)
            return SKIPPED
        print("error: " + missing + "; INGOT_ALLOW_SKIP=1 skips this test", file=sys.stderr)
        return 1
    if arguments.screenshots:
        import screenshot
        screenshot.take(arguments.screenshots)
        return 0
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in arguments.k] if arguments.k else None
    suite = loader.loadTestsFromNames(MODULES)
    runner = unittest.TextTestRunner(verbosity=2, resultclass=server.CountingResult)
    result = runner.run(suite)
    server.write_cases(result.cases)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
