#!/usr/bin/env python3
"""What it is worth that stages work at the same time: `ingot bench --pp 2` with one step in flight, with two and with three, by turns, on two
hosts (network namespaces) with a link between them that has a delay. Root, Linux; build with -DINGOT_BUILD_BENCH=ON.

    bench/stages_overlap.py [--delay-us 1000] [--mbit 10000] [--streams 8] [--prompt 32] [--tokens 192] [--rounds 3]
                            [--pp-layers 16,14] [--priority] [--ingot-args="--isa avx2"]
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "server"))

import hosts  # noqa: E402

IN_FLIGHT = (1, 2, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--model", help="the default one unless given")
    for name, default in (("--delay-us", 1000), ("--mbit", 10_000), ("--streams", 8), ("--prompt", 32), ("--tokens", 192), ("--rounds", 3)):
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("--pp-layers", help="cut by hand")
    parser.add_argument("--priority", action="store_true", help="run ahead of other programs, where the machine has others")
    parser.add_argument("--ingot-args", default="", help="more for both sides")
    args = parser.parse_args()
    if (reason := hosts.missing("mpirun")) is not None:
        sys.exit(f"stages_overlap.py: {reason}")
    ahead = ["chrt", "-r", "10"] if args.priority else []
    model = ["-m", args.model] if args.model else []
    cut = ["--pp-layers", args.pp_layers] if args.pp_layers else []
    speeds = {count: [] for count in IN_FLIGHT}
    with hosts.Hosts(str(args.build / "bin" / "link_relay"), args.delay_us, args.mbit) as far:
        for _ in range(args.rounds):
            for count in IN_FLIGHT:
                done = subprocess.run([*far.mpirun(2), *ahead, str(args.build / "bin" / "ingot"), "bench", *model, "--pp", "2", *cut, "-t", "1",
                                       "--batch", str(args.streams), "--prompt-len", str(args.prompt), "--gen-len", str(args.tokens), "--in-flight", str(count), "--json",
                                       *shlex.split(args.ingot_args)],
                                      capture_output=True, text=True, timeout=600, check=False)
                if done.returncode != 0:
                    sys.exit(done.stderr)
                speeds[count].append(json.loads(done.stdout)["rows"][0]["decode_tok_s"])
    medians = {count: statistics.median(values) for count, values in speeds.items()}
    for count, speed in medians.items():
        print(f"{count} in flight: {speed:7.1f} tokens/s, {speed / medians[1]:.2f} times")


if __name__ == "__main__":
    main()
