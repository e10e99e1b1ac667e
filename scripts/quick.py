#!/usr/bin/env python3
"""`make test-quick`: builds and runs what the edits since the last green run can reach, the nearest tests first.

usage: quick.py [--list] [--seconds N]

--list prints what it would run and stops. Tests are taken while their usual times, as ctest remembers them, fit into N seconds
(default 40) of all cores; what does not fit is named and left to `make test`, but the nearest two always run.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import affected

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
GREEN = BUILD / "quick.json"  # path -> hash, of the last run in which all tests passed
UNKNOWN_SECONDS = 10  # of a test that was never run


def tree():
    """Path -> hash of every file that git knows or would know."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [n for n in listed.stdout.decode().split("\0") if n and (ROOT / n).is_file()]
    return {n: hashlib.sha1((ROOT / n).read_bytes()).hexdigest() for n in names}


def usual_seconds():
    """What ctest remembers: name, runs, seconds."""
    try:
        lines = (BUILD / "Testing/Temporary/CTestCostData.txt").read_text().split("\n")
    except OSError:
        return {}
    rows = (line.split(" ") for line in lines)
    return {row[0]: float(row[2]) for row in rows if len(row) == 3 and int(row[1]) > 0}


def choose(tests, budget):
    """(tests that fit, those that do not)"""
    seconds, taken, left, sum_s = usual_seconds(), [], [], 0
    for name in tests:
        cost = seconds.get(name, UNKNOWN_SECONDS)
        if len(taken) < 2 or sum_s + cost <= budget:
            taken.append(name)
            sum_s += cost
        else:
            left.append(name)
    return taken, left


def main():
    budget = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 40
    now, start = tree(), time.time()
    subprocess.run([ROOT / "scripts/build.sh", "release", "--configure"], check=True)
    if GREEN.is_file():
        green = json.loads(GREEN.read_text())
        changed = sorted(p for p in now.keys() | green.keys() if now.get(p) != green.get(p))
        if not changed:
            return print("==> nothing changed since the last green run")
    else:  # the first time: what is not committed
        status = subprocess.run(["git", "status", "--porcelain", "-z", "--no-renames"], cwd=ROOT, capture_output=True, check=True)
        changed = sorted(line[3:] for line in status.stdout.decode().split("\0") if line)
    unknown = [p for p in changed if not affected.is_covered(p)]
    if unknown or not changed:
        print(f"==> {unknown[0] if unknown else 'a first run'}: everything may be reached; the whole release suite")
        if "--list" in sys.argv:
            return None
        code = subprocess.run([ROOT / "scripts/test.sh", "release"]).returncode
    else:
        tests, left = choose(affected.tests_for(changed, BUILD), budget * (os.cpu_count() or 1))
        print(f"==> {len(changed)} changed, among them {changed[0]}")
        print("==> " + (" ".join(tests) if tests else "no test of the suite reads them"), flush=True)
        if left:
            print("    left to make test: " + " ".join(left), flush=True)
        if "--list" in sys.argv:
            return None
        code = 0
        if tests:
            subprocess.run([ROOT / "scripts/build.sh", "release", *affected.targets_for(tests, BUILD)], check=True)
            code = subprocess.run([ROOT / "scripts/test.sh", "only", *tests]).returncode
    if code == 0:
        GREEN.write_text(json.dumps(now))
    print(f"==> {time.time() - start:.0f} s")
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(failed.returncode)
