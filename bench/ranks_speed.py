#!/usr/bin/env python3
"""Two ranks of one thread each beside one process of two threads, in turns: medians of prefill and decoding, tokens/s.

    bench/ranks_speed.py [--rounds N] [--priority]     the default model, and made-up weights in TinyLlama's shapes

--priority (root): ahead of whatever else the machine does.
"""

import argparse
import json
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
MPIRUN = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", "2"]
TINYLLAMA = ["-m", str(ROOT / "tests" / "fixtures" / "configs" / "TinyLlama-1.1B"), "--load-format", "dummy", "--dtype", "q8_0"]
# Half a second each: a tenth of one says what else the machine did.
MODELS = {"the default model": (["--gen-len", "192"], 512), "TinyLlama's shapes, q8_0": ([*TINYLLAMA, "--gen-len", "24"], 256)}


def measure(launch, program, words, prompt):
    command = [*launch, str(program), "bench", "--json", "--limit-gb-s", "1", "--batch", "1", "--prompt-len", str(prompt), *words]
    row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["rows"][0]
    return row["prefill_tok_s"], row["decode_tok_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--priority", action="store_true")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build" / "bin" / "ingot")
    args = parser.parse_args()
    first = ["chrt", "-r", "10"] if args.priority else []
    print("| model | | one process | two ranks | ratio |\n|---|---|---|---|---|")
    for name, (words, prompt) in MODELS.items():
        one, two = [], []
        for _ in range(args.rounds):
            one.append(measure(first, args.program, [*words, "-t", "2"], prompt))
            two.append(measure([*MPIRUN, *first], args.program, [*words, "-t", "1", "--tp", "2"], prompt))
        for i, kind in enumerate(("prefill", "decode")):
            a, b = (statistics.median(round_[i] for round_ in rounds) for rounds in (one, two))
            print(f"| {name} | {kind} | {a:,.0f} | {b:,.0f} | {b / a:.2f} |", flush=True)


if __name__ == "__main__":
    main()
