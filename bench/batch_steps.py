#!/usr/bin/env python3
"""Whether decoding is smooth in the batch: what a token costs at each batch size from 1 to 64, and where one sequence more makes each dearer.

    bench/batch_steps.py [-m FILE] [--from 1] [--to 64] [--rounds 3] [--threads 1] [--prompt-len 64] [--gen-len 12] [--rise 3]
                         [--priority] [--ingot-args="--isa avx2"]

Each round is one process that measures all sizes; the best of the rounds counts, since other work on the cores only ever slows. Exits
with 1 when a token costs more than --rise percent more than with one sequence less. Standard library only.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ingot", type=pathlib.Path, default=ROOT / "build" / "bin" / "ingot")
    parser.add_argument("-m", "--model", help="the default one unless given")
    for name, default in (("--from", 1), ("--to", 64), ("--rounds", 3), ("--threads", 1), ("--prompt-len", 64), ("--gen-len", 12)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--rise", type=float, default=3.0, help="percent")
    parser.add_argument("--priority", action="store_true", help="run ahead of other programs, where the machine has others")
    parser.add_argument("--ingot-args", default="")
    args = parser.parse_args()
    sizes = list(range(getattr(args, "from"), args.to + 1))
    command = ["chrt", "-r", "10"] if args.priority else []
    command += [args.ingot, "bench", "--shared-prompt", "--threads", args.threads, "--prompt-len", args.prompt_len, "--gen-len", args.gen_len,
                "--batch", ",".join(map(str, sizes)), "--json", *(["-m", args.model] if args.model else []), *shlex.split(args.ingot_args)]
    best = {}
    for _ in range(args.rounds):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800, check=False)
        if done.returncode != 0:
            sys.exit(done.stderr)
        for row in json.loads(done.stdout)["rows"]:
            best[row["batch"]] = min(best.get(row["batch"], float("inf")), 1e3 / row["decode_tok_s"])
    steps = 0
    print("batch  ms a token  of one less")
    for size in sizes:
        rise = 100 * (best[size] / best[size - 1] - 1) if size - 1 in best else 0.0
        steps += rise > args.rise
        print(f"{size:5}  {best[size]:10.4f}  {rise:+9.1f} %{'  <' if rise > args.rise else ''}")
    print(f"{steps} of {len(sizes) - 1} steps rise by more than {args.rise:g} %")
    return 1 if steps else 0


if __name__ == "__main__":
    sys.exit(main())
