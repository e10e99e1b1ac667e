#!/usr/bin/env python3
"""Races Ingot against llama.cpp: same file, same threads, same work, taking turns in one run; one table of ratios.

    bench/race_llama_cpp.py --build-peer DIR         fetch and build llama.cpp there (once, 10 to 20 minutes), then stop
    bench/race_llama_cpp.py --peer-bin DIR/build/bin     race against the binaries there: every cell
    ... --only smollm2,q4_0,q8_0,prefill-512,batch-16    a model, two formats, two kinds of work
    ... --isa avx2                                   both without AVX-512 (--build-peer DIR --isa avx2 builds that)

A run is one process that measures a file at one length of prompt: its prefill, then decoding at each batch size. Both programs run
once a round, the order swapped from round to round, so that slow drift of the machine cancels out. A figure is the median of the
rounds; beside the ratio of the medians stand the lowest and the highest ratio of a single round, which say how far to trust it.
A batch shares its prompt on both sides: it is computed once, and each further sequence gets a copy of its cache in memory of its own
(`llama-batched-bench -pps`, `ingot bench --shared-prompt`), so that decoding reads as much memory as with prompts of its own.

Taking turns does not make up for a busy machine: llama.cpp's threads spin at their barriers and collapse when cores are
shared, Ingot's sleep, so the ratio then flatters Ingot severalfold. What others use of the cores is therefore measured
before every run; the race does not start on a busy machine, and a report says so when one became busy. Standard library only.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shlex
import statistics
import sys
import time

import race_models
import racing as base

# model, formats, then runs: tokens of the prompt, whether its prefill is a cell, batch sizes after it, tokens generated
MODELS = [
    ("smollm2", race_models.FORMATS, [(512, True, [], 1), (128, False, [1, 4, 8, 16, 32], 48),
                                      (4096, True, [1, 4, 8, 16, 32], 16)]),
    ("tinyllama-1.1b", race_models.FORMATS, [(512, True, [], 1), (128, False, [1, 4, 8], 24)]),
    ("llama3-8b", ["Q4_0", "Q4_K", "Q8_0"], [(512, True, [1, 4], 12)]),
]
TITLES = {"smollm2": "SmolLM2-135M", "tinyllama-1.1b": "1.1B shape (TinyLlama)", "llama3-8b": "8B shape (Llama 3)"}
MEMORY_BOUND = {("tinyllama-1.1b", 1), ("llama3-8b", 1)}  # batches whose time is that of reading the weights
BILLIONS = {"smollm2": 0.135, "tinyllama-1.1b": 1.1, "llama3-8b": 8.0}  # of weights, for the time left
PREFILL_REPEATS = 3  # where nothing else runs


@dataclasses.dataclass
class Run:
    """What one process of each program measures: `cells` by name, each with the figures of the rounds."""

    model: str
    format: str
    prompt: int
    batches: list
    gen: int
    prefill: bool
    file: pathlib.Path = None
    cells: dict = dataclasses.field(default_factory=dict)

    def cost(self):
        """In arbitrary units, the same for all: for the time left."""
        prompts = len(self.batches) or PREFILL_REPEATS
        steps = sum(self.gen * (1 + batch / 8) for batch in self.batches)
        attention = 1 + self.prompt / 8000 / BILLIONS[self.model]
        return BILLIONS[self.model] * (prompts * self.prompt + 4 * steps * attention) + 300 * (0.1 + BILLIONS[self.model])


def select(only):
    """The runs and their cells that `only` names; words of one kind are alternatives, kinds all have to fit."""
    words = {word.strip().lower() for word in only.split(",") if word.strip()}
    every = [run for _, _, model_runs in MODELS for run in model_runs]
    models = {model for model, _, _ in MODELS}
    formats = {name.lower() for name in race_models.FORMATS}
    prefills = {"prefill"} | {f"prefill-{prompt}" for prompt, prefill, _, _ in every if prefill}
    batches = {"decode"} | {f"batch-{batch}" for _, _, sizes, _ in every for batch in sizes}
    depths = {f"after-{prompt}" for prompt, _, sizes, _ in every if sizes}
    known = models | formats | prefills | batches | depths
    if words - known:
        raise base.RaceError(f"--only: nothing is called {', '.join(sorted(words - known))}; known: {', '.join(sorted(known))}")

    def chosen(kind, *names):
        """Whether one of the names is wanted, or no word of their kind is given."""
        return not words & kind or bool(words & set(names))

    runs = []
    for model, names, model_runs in MODELS:
        if not chosen(models, model):
            continue
        for name in names:
            if not chosen(formats, name.lower()):
                continue
            for prompt, prefill, sizes, gen in model_runs:
                prefill = prefill and chosen(prefills | batches | depths, "prefill", f"prefill-{prompt}")
                sizes = [batch for batch in sizes if chosen(prefills | batches, "decode", f"batch-{batch}") or
                         not words & batches and words & depths]
                sizes = [batch for batch in sizes if chosen(depths, f"after-{prompt}")]
                if prefill or sizes:
                    runs.append(Run(model, name, prompt, sizes, gen, prefill))
    return runs


class Race:
    def __init__(self, args):
        self.ingot = pathlib.Path(args.ingot)
        self.peer = pathlib.Path(args.peer_bin)
        self.threads = args.threads
        self.extra = shlex.split(args.ingot_args) + (["--isa", args.isa] if args.isa else [])
        self.peer_env = dict(os.environ)
        for variable in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            old = self.peer_env.get(variable)
            self.peer_env[variable] = str(self.peer) + (os.pathsep + old if old else "")
        self.busy = []  # share of the cores that others used, one a run
        self.bandwidth = []  # GB/s that ingot bench measured, one a run
        self.device = ""

    def run_ingot(self, run):
        """{cell: tok/s}, and what share of the read bandwidth the weights took, by batch."""
        batches = run.batches or [1] * PREFILL_REPEATS
        report = json.loads(base.call([self.ingot, "bench", "-m", run.file, "--batch", ",".join(map(str, batches)),
                                       "--prompt-len", run.prompt, "--gen-len", run.gen, "--shared-prompt", "--threads", self.threads,
                                       "--json", *self.extra]))
        self.bandwidth.append(report["host_read_gb_s"])
        self.device = report["device"]
        figures = {"prefill": statistics.median(row["prefill_tok_s"] for row in report["rows"])}
        for row in report["rows"]:
            figures[row["batch"]] = row["decode_tok_s"]
            figures[row["batch"], "GB/s"] = row["weight_gb_s"]
        return figures

    def run_peer(self, run):
        batches = run.batches or [1]
        prompts = [run.prompt] * (1 if run.batches else PREFILL_REPEATS)
        lines = base.call([self.peer / "llama-batched-bench", "-m", run.file, "-t", self.threads, "-tb", self.threads, "-pps",
                           "-npp", ",".join(map(str, prompts)), "-ntg", run.gen, "-npl", ",".join(map(str, batches)),
                           "-c", max(batches) * (run.prompt + run.gen), "--output-format", "jsonl"],
                          env=self.peer_env, timeout=3600).splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        if len(rows) != len(prompts) * len(batches):
            raise base.RaceError(f"llama-batched-bench gave {len(rows)} rows where {len(prompts) * len(batches)} were asked for")
        figures = {"prefill": statistics.median(row["speed_pp"] for row in rows)}
        for row in rows:
            figures[row["pl"]] = row["speed_tg"]
        return figures

    def run_round(self, run, swapped):
        sides = [("ingot", self.run_ingot), ("peer", self.run_peer)]
        figures = {}
        for key, runner in reversed(sides) if swapped else sides:
            self.busy.append(base.busy_share())
            figures[key] = runner(run)
        for cell in (["prefill"] if run.prefill else []) + run.batches:
            kept = run.cells.setdefault(cell, {"ingot": [], "peer": [], "gb_s": []})
            kept["ingot"].append(figures["ingot"][cell])
            kept["peer"].append(figures["peer"][cell])
            if cell != "prefill":
                kept["gb_s"].append(figures["ingot"][cell, "GB/s"])

    def run(self, runs, rounds):
        total, done, start = rounds * sum(run.cost() for run in runs), 0.0, time.monotonic()
        for turn in range(rounds):
            for run in runs:
                self.run_round(run, turn % 2 == 1)
                done += run.cost()
                passed = time.monotonic() - start
                ratios = ", ".join(f"{cell if cell == 'prefill' else f'batch {cell}'}"
                                   f" {kept['ingot'][-1]:.0f}/{kept['peer'][-1]:.0f}={kept['ingot'][-1] / kept['peer'][-1]:.2f}"
                                   for cell, kept in run.cells.items())
                print(f"    round {turn + 1}/{rounds}, {passed / 60:.1f} min, about {passed * (total / done - 1) / 60:.0f} left:"
                      f" {run.model} {run.format}, prompt {run.prompt}: {ratios}", file=sys.stderr, flush=True)

    def results(self, runs):
        bandwidth = statistics.median(self.bandwidth)
        for run in runs:
            for cell, kept in run.cells.items():
                ratios = [ours / theirs for ours, theirs in zip(kept["ingot"], kept["peer"])]
                ours, theirs = statistics.median(kept["ingot"]), statistics.median(kept["peer"])
                result = {"model": run.model, "format": run.format, "file": run.file.name, "prompt": run.prompt,
                          "batch": None if cell == "prefill" else cell, "ingot": kept["ingot"], "peer": kept["peer"],
                          "ingot_median": ours, "peer_median": theirs, "ratio": ours / theirs, "ratio_low": min(ratios),
                          "ratio_high": max(ratios)}
                if kept["gb_s"]:
                    result["gb_s"] = statistics.median(kept["gb_s"])
                    result["share_of_bandwidth"] = result["gb_s"] / bandwidth
                yield result


def work_name(row):
    return f"prefill {row['prompt']:,}" if row["batch"] is None else f"batch {row['batch']} after {row['prompt']:,}"


def table(report):
    """A table a model: formats across, work down. A cell: ratio (Ingot's tok/s), share of the bandwidth where that is the limit."""
    lines = []
    for model, title in TITLES.items():
        rows = [row for row in report["results"] if row["model"] == model]
        if not rows:
            continue
        formats = list(dict.fromkeys(row["format"] for row in rows))
        works = sorted({(row["batch"] is not None, row["prompt"], row["batch"] or 0) for row in rows})
        lines += [f"| {title} | " + " | ".join(formats) + " |", "|---|" + "---:|" * len(formats)]
        for decodes, prompt, batch in works:
            cells = []
            for name in formats:
                found = [row for row in rows if (row["format"], row["prompt"], row["batch"] or 0) == (name, prompt, batch)
                         and (row["batch"] is not None) == decodes]
                if not found:
                    cells.append("")
                    continue
                row = found[0]
                cell = f"**{row['ratio']:.2f}×** {row['ingot_median']:.{0 if row['ingot_median'] >= 20 else 1}f}"
                if (model, batch) in MEMORY_BOUND and decodes:
                    cell += f", {row['share_of_bandwidth']:.0%}"
                cells.append(cell)
            lines.append(f"| {work_name({'prompt': prompt, 'batch': batch if decodes else None})} | " + " | ".join(cells) + " |")
        lines.append("")
        if model == "smollm2":
            notes = [f"{name}: {note}" for name, note in race_models.SMOLLM2_NOTES.items() if name in formats]
            if notes:
                lines += ["; ".join(notes) + " (llama-quantize's choice; the larger shapes are in the format itself).", ""]
    spread = [max(row["ratio_high"] / row["ratio"], row["ratio"] / row["ratio_low"]) - 1 for row in report["results"]]
    lines += [f"A cell: Ingot's tok/s over llama.cpp's, then Ingot's tok/s; where a batch is bound by memory, how much of the read bandwidth"
              f" its weights took. {report['cpu']}, {report['device']}, {report['host_read_gb_s']:.0f} GB/s read bandwidth; medians of"
              f" {report['rounds']} rounds, {report['date']}, {report['minutes']:.0f} minutes in all; single rounds lie within"
              f" {statistics.median(spread):.0%} of the ratio (median; worst cell {max(spread):.0%}); Ingot {report['ingot']}, llama.cpp"
              f" {report['peer']}.", f"Command: `{report['command']}`"]
    if report["busy_most"] is None:
        lines.append("How busy the machine was is not known on this system.")
    elif report["busy_most"] > base.MOST_BUSY:
        lines += ["", f"**Not a valid measurement:** others used up to {report['busy_most']:.0%} of the cores"
                      f" (median {report['busy_median']:.0%}). Run it again on a quiet machine."]
    return "\n".join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-peer", type=pathlib.Path, metavar="DIR", help="build llama.cpp in DIR and stop")
    parser.add_argument("--peer-bin", type=pathlib.Path, metavar="DIR", help="folder with llama-batched-bench and its siblings")
    parser.add_argument("--peer-name", default="as built there", help="the peer's version, for the report")
    parser.add_argument("--ingot", default=base.ROOT / "build" / "bin" / "ingot", type=pathlib.Path, help="the ingot binary")
    parser.add_argument("--ingot-args", default="", help="more arguments for ingot bench, as one string")
    parser.add_argument("--isa", default="", choices=["", "avx2"], help="both programs without what came after it")
    parser.add_argument("--only", default="", metavar="WORDS", help="some models, formats and kinds of work: smollm2, tinyllama-1.1b,"
                        " llama3-8b; q4_0, ...; prefill, prefill-512, decode, batch-1, ..., after-128, after-4096")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                        else os.cpu_count(), help="threads of both (default: the cores at hand, %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each run (default: 3)")
    parser.add_argument("--busy-ok", action="store_true", help="race on a busy machine too; the report is marked as not valid")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every figure there")
    args = parser.parse_args()
    if not args.build_peer and not args.peer_bin and not args.list:
        parser.error("give --peer-bin DIR, or --build-peer DIR to make one")
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return args


def main():
    args = parse_args()
    if args.build_peer:
        print(base.build_peer(args.build_peer.resolve(), os.cpu_count() or 2, args.isa))
        return
    runs = select(args.only)
    if not runs:
        raise base.RaceError("--only: no cell has all of that")
    if args.list:
        for run in runs:
            print(f"{run.model} {run.format}, prompt {run.prompt}:", "prefill" if run.prefill else "", *(f"batch-{b}" for b in run.batches))
        return
    for name in ("llama-batched-bench", "llama-quantize"):
        if not (args.peer_bin / name).exists():
            raise base.RaceError(f"no {name} in {args.peer_bin}; make one with: {sys.argv[0]} --build-peer DIR")
    default_model = pathlib.Path(base.call([base.ROOT / "scripts" / "fetch_model.sh", "--path"]).strip())
    if not default_model.exists():
        raise base.RaceError(f"no model at {default_model}; run: make model")
    start = time.monotonic()
    race = Race(args)
    for run in runs:
        run.file = (race_models.smollm2(run.format, default_model, args.peer_bin / "llama-quantize", race.peer_env)
                    if run.model == "smollm2" else race_models.shape(run.model, run.format))
    busy = base.busy_share(2.0)
    if busy is not None and busy > base.MOST_BUSY and not args.busy_ok:
        raise base.RaceError(f"others use {busy:.0%} of the cores: figures taken now would flatter Ingot and mean nothing; wait for a"
                             " quiet machine, or give --busy-ok to try the tool out")
    race.run(runs, args.rounds)
    try:
        commit = base.call(["git", "-C", base.ROOT, "describe", "--always", "--dirty"]).strip()
    except base.RaceError:
        commit = "of unknown commit"
    given = "".join(f" --{name} {value}" for name, value in [("only", args.only), ("isa", args.isa)] if value)
    busy = [share for share in race.busy if share is not None]
    report = {
        "date": datetime.date.today().isoformat(), "cpu": base.cpu()[0], "device": race.device, "threads": args.threads,
        "rounds": args.rounds, "minutes": (time.monotonic() - start) / 60, "ingot": commit, "peer": args.peer_name,
        "host_read_gb_s": statistics.median(race.bandwidth), "busy_median": statistics.median(busy) if busy else None,
        "busy_most": max(busy) if busy else None,
        "command": f"bench/race_llama_cpp.py --peer-bin DIR --threads {args.threads} --rounds {args.rounds}{given}",
        "results": list(race.results(runs)),
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    base.run(main)
