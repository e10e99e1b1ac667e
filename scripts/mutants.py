#!/usr/bin/env python3
"""Makes one-line faults in the sources, one at a time, and sees whether the tests notice.

    scripts/mutants.py --list                 what would be tried
    scripts/mutants.py                        tries them; results are kept, so it can be stopped and started again
    scripts/mutants.py --only 3,17            some of them
    scripts/mutants.py --out mutants.md       also writes the table

The faults are drawn by a seed, for a given tree always the same ones: mutant_places.py has the places, what is left out and
why, mutant_kinds.py the kinds. Each is built and tested in a copy of the tree (build-mutants/), with the tests that
affected.py names, nearest first, until one fails. A test counts only if it passes without the fault.
"""

import argparse
import collections
import json
import os
import pathlib
import signal
import sys
import time

sys.dont_write_bytecode = True  # the folder is the user's

import mutant_places
import mutant_run

ROOT = pathlib.Path(__file__).resolve().parent.parent
DRAWN = pathlib.Path(__file__).with_name("mutants_drawn.txt")
REPLACEMENTS = 5  # tries for one that does not compile


def say(text):
    print(text, flush=True)


class Records:
    """What is known from earlier runs, by fault and tree."""

    def __init__(self, file, tree, reuse):
        self.file, self.tree, self.reuse = file, tree, reuse
        self.data = json.loads(file.read_text()) if file.is_file() else {"mutants": {}, "clean": {}}
        self.clean = self.data["clean"].setdefault(tree, {})

    def find(self, mutation, presets):
        known = self.data["mutants"].get(mutation.identity, {})
        here = known.get(self.tree)
        if here and (here["outcome"] != "SURVIVED" or set(here["presets"]) >= set(presets)) and here["outcome"] != "skipped":
            return here
        elsewhere = [r for r in known.values() if r["outcome"] == "caught"]
        return elsewhere[-1] if self.reuse and elsewhere else None

    def keep(self, mutation, record):
        self.data["mutants"].setdefault(mutation.identity, {})[self.tree] = record
        self.save()

    def save(self):
        """Whole or not at all: a run may be stopped at any moment."""
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.data, indent=1))
        os.replace(part, self.file)


class Runner:
    def __init__(self, work, records, presets):
        self.work, self.records, self.presets = work, records, presets

    def limits(self, preset, names):
        """A test that takes far longer than without the fault hangs."""
        known = {n: self.records.clean.get(f"{preset}/{n}", {}) for n in names}
        return {n: max(60, 6 * k["seconds"]) for n, k in known.items() if k.get("passes")}

    def build(self, mutation, preset, names):
        """Whether the tests could be built with the fault. When not, it must be the fault's doing."""
        targets = self.work.targets(preset, names)
        if self.work.build(preset, targets):
            return True
        self.work.restore(mutation)
        self.work.build_clean(preset, targets)
        return False

    def passes_clean(self, mutation, preset, name):
        """Whether a test passes without the fault; asked once for each test that failed with one."""
        key = f"{preset}/{name}"
        if key not in self.records.clean:
            self.work.restore(mutation)
            self.work.build_clean(preset, self.work.targets(preset, [name]))
            entries = self.work.entries(preset)
            ((_, result),) = self.work.run(entries, [name], {}, preset)
            self.records.clean[key] = {"passes": result.outcome == "passed", "seconds": round(result.seconds, 1)}
            self.records.save()
            self.work.put(mutation)
        return self.records.clean[key]["passes"]

    def attempt(self, mutation, preset):
        """(outcome, what noticed, note)"""
        work = self.work
        work.configure(preset)
        names = work.tests(preset, mutation)
        names = [n for n in names if self.records.clean.get(f"{preset}/{n}", {}).get("passes", True)]
        work.put(mutation)
        if mutation.path.endswith(".py") and not mutant_run.compiles_python(work.tree / mutation.path):
            return "does not compile", "", ""
        notes, some = [] if names else [f"no test of the {preset} build covers it"], 1
        while names:
            now, names = names[:some], names[some:]  # few at first: most faults are noticed next to where they are
            if not self.build(mutation, preset, now):
                return "does not compile", "", ""
            results = work.run(work.entries(preset), now, self.limits(preset, now), preset)
            notes += [f"{n}: {r.outcome}" for n, r in results if r.outcome in ("missing", "skipped")]
            name, last = results[-1]
            if last.outcome not in ("failed", "timeout"):
                some *= 2
                continue
            if ("/kernels/" in mutation.path or "/shim/" in mutation.path) and last.kernel_does_not_compile():
                return "does not compile", "", ""
            if self.passes_clean(mutation, preset, name):
                said = last.case() if last.outcome == "failed" else "timeout"
                return "caught", f"{name}: {said}" if said else name, "; ".join(notes)
            notes.append(f"{name} fails without it too")
            names = [n for n in now if n not in {done for done, _ in results}] + names
        if f"{mutant_run.VLLM_TEST}: missing" in notes:
            return "skipped", "", "vLLM is not installed (scripts/vllm_setup.sh); the other tests do not notice"
        return "SURVIVED", "", "; ".join(notes)

    def run(self, mutation):
        wanted = mutant_run.presets_of(mutation)
        presets = [p for p in wanted if p in self.presets] or ["release"]
        known = self.records.find(mutation, presets)
        if known:
            return known
        start, record = time.time(), {}
        for preset in presets:
            try:
                outcome, by, note = self.attempt(mutation, preset)
            finally:
                self.work.restore(mutation)
            record = {"outcome": outcome, "by": by, "note": note, "preset": preset, "presets": presets}
            if outcome != "SURVIVED":
                break
        record["seconds"] = round(time.time() - start)
        self.records.keep(mutation, record)
        return record


def shown(text):
    return text.replace("|", "\\|").replace("`", "'")


def table(rows):
    """Markdown."""
    out = ["| # | place | kind | where | change | outcome | s |", "|---|---|---|---|---|---|---|"]
    for number, m, record in rows:
        change = f"`{shown(m.before)}` → `{shown(m.after)}`"
        outcome = record.get("outcome", "not run")
        told = f"{record.get('by')} ({record['preset']})" if outcome == "caught" else outcome
        told += f"; {record['note']}" if record.get("note") else ""
        out.append(f"| {number} | {m.place} | {m.kind} | {m.path}:{m.line} | {change} | {shown(told)} | {record.get('seconds', '')} |")
    counts = collections.Counter(record.get("outcome", "not run") for _, _, record in rows)
    out += ["", ", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items()))]
    return "\n".join(out) + "\n"


def write(path, rows):
    if path.endswith(".json"):
        keys = ("place", "kind", "path", "line", "before", "after")
        text = json.dumps([{"number": n, **{k: getattr(m, k) for k in keys}, **r} for n, m, r in rows], indent=1) + "\n"
    else:
        text = table(rows)
    pathlib.Path(path).write_text(text)


def keep(rows):
    """For the next run, in whatever tree: the same faults, as long as their lines are there."""
    lines = [f"{m.identity} {m.path}: {m.kind}, {shown(m.after)}" for _, m, r in rows if r["outcome"] in ("caught", "SURVIVED")]
    DRAWN.write_text("# Faults that were drawn by a seed and are tried again (mutants.py --keep).\n" + "\n".join(lines) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--fresh", action="store_true", help="draw all anew instead of those in mutants_drawn.txt")
    parser.add_argument("--keep", action="store_true", help="write what was tried to mutants_drawn.txt")
    parser.add_argument("--list", action="store_true", help="print the draw and stop")
    parser.add_argument("--only", help="numbers of the list: 3,17")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="compilers and tests at once")
    parser.add_argument("--out", action="append", default=[], help="also write the results: FILE.md or FILE.json")
    parser.add_argument("--presets", default="release,asan,tsan",
                        help="builds that may be made; a fault is tried in those that can show it")
    parser.add_argument("--reuse-caught", action="store_true", help="what was caught in another tree counts: after adding tests")
    return parser.parse_args()


def main():
    args = arguments()
    kept = [] if args.fresh or not DRAWN.is_file() else [line.split()[0] for line in DRAWN.read_text().splitlines() if line[0] != "#"]
    draw = mutant_places.Draw(ROOT, args.seed, args.count, kept)
    numbered = list(enumerate(draw.mutations, 1))
    if args.only:
        wanted = {int(n) for n in args.only.split(",")}
        numbered = [(n, m) for n, m in numbered if n in wanted]
    if args.list:
        for number, m in numbered:
            say(f"{number:3} {m.place}: {m.kind}, {m.path}:{m.line}\n      - {m.before}\n      + {m.after}")
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(draw.totals.items()))
        return say(f"{len(numbered)} of {sum(map(len, draw.pool.values()))} possible: {kinds}")

    work = mutant_run.Workspace(ROOT, args.jobs, say)
    tree = work.sync()
    records = Records(work.base / "results.json", tree, args.reuse_caught)
    runner = Runner(work, records, args.presets.split(","))
    rows = []
    for number, mutation in numbered:
        record = runner.run(mutation)
        for other in draw.others(mutation)[:REPLACEMENTS]:
            if record["outcome"] != "does not compile":
                break
            say(f"{number:3} {mutation.path}:{mutation.line} {mutation.kind}: does not compile, another is drawn")
            mutation, record = other, runner.run(other)
        rows.append((number, mutation, record))
        said = f"caught by {record['by']} ({record['preset']})" if record["outcome"] == "caught" else record["outcome"]
        say(f"{number:3} {mutation.path}:{mutation.line} {mutation.kind}: {said}, {record['seconds']} s")
        for path in args.out:
            write(path, rows)
    if args.keep:
        keep(rows)
    survivors = [r for r in rows if r[2]["outcome"] == "SURVIVED"]
    say("\n" + table(survivors) if survivors else "\nEvery one was caught or could not be run.")
    return 1 if survivors else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the line is restored, and no test stays behind
    try:
        sys.exit(main())
    except mutant_run.Broken as broken:
        sys.exit(f"error: {broken}")
