#!/usr/bin/env python3
"""Counts what one ctest run did: prints `passed failed skipped name...`, the names being those of the failed entries.

usage: count_tests.py FOLDER CTEST_EXIT_STATUS

FOLDER holds ctest.junit and the XML files that GoogleTest wrote (GTEST_OUTPUT). An entry that is a GoogleTest binary of the
same name counts its cases; any other entry counts as one. An entry that failed without a failed case (a crash, a leak, a
time-out) is one failure, and so is a run that ended badly without any.
"""

import pathlib
import sys
import xml.etree.ElementTree as xml


def gtest_cases(path):
    """(passed, failed, skipped) of one GoogleTest file, or None when it was cut short."""
    try:
        cases = list(xml.parse(path).iter("testcase"))
    except (OSError, xml.ParseError):
        return None
    failed = sum(case.find("failure") is not None for case in cases)
    skipped = sum(case.get("result") == "skipped" or case.find("skipped") is not None for case in cases)
    ran = sum(case.get("status") != "notrun" for case in cases)  # notrun: disabled in the source
    return ran - failed - skipped, failed, skipped


def main():
    folder, status = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    passed = failed = skipped = 0
    names = []
    try:
        entries = list(xml.parse(folder / "ctest.junit").iter("testcase"))
    except (OSError, xml.ParseError):
        entries = []
    for entry in entries:
        name, outcome = entry.get("name"), entry.get("status")
        cases = gtest_cases(folder / f"{name}.xml")
        if outcome == "fail":
            names.append(name)
            good, bad, skips = cases or (0, 0, 0)
            passed, failed, skipped = passed + good, failed + max(bad, 1), skipped + skips
        elif outcome == "run":
            good, bad, skips = cases or (1, 0, 0)
            passed, skipped = passed + good, skipped + skips
        elif entry.find("skipped") is not None and "SKIP" in entry.find("skipped").get("message", ""):
            skipped += 1
        else:  # its binary was not there
            names.append(name)
            failed += 1
    if status != 0 and failed == 0:
        names.append("ctest")
        failed = 1
    print(passed, failed, skipped, *names)


main()
