#!/usr/bin/env python3
"""How long a model takes to its first token: packed anew, with --packed-cache the first time, and from its files.

    bench/packed_load.py [-m MODEL | --shape llama3-8b --format Q4_0] [--rounds 3] [--threads N] [--dir DIR]

Each start is a process of its own, `ingot run --ids 1,2,3 -n 1`, timed from its start to the first byte of its answer. `warm`: the files are in
memory; `cold`: the system was told to forget them (needs root, and is left out without). Then decoding from a file's own pages and from memory
by turns (`ingot bench`). Printed are medians, GB/s of the packed weights, and what the disk and memory gave in the same minutes.
"""

import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import race_models  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
INGOT = os.environ.get("INGOT_BINARY", str(ROOT / "build/bin/ingot"))


def forget_files():
    os.sync()
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return False
    return True


def first_token(args, *flags):
    """Seconds to the first byte of the answer, and to the end of the process."""
    begin = time.monotonic()
    command = [INGOT, "run", "-m", str(args.model), "--ids", "1,2,3", "-n", "1", "--temperature", "0", "--ignore-eos",
               "--max-model-len", "64", "--threads", str(args.threads), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as process:
        process.stdout.read(1)
        seconds = time.monotonic() - begin
        process.stdout.read()
    if process.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}")
    return seconds, time.monotonic() - begin


def bench(args, *flags):
    command = [INGOT, "bench", "-m", str(args.model), "--batch", "1", "--prompt-len", "16", "--gen-len", "32", "--threads", str(args.threads), "--json", *flags]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def disk_speed(path, threads=8, piece=4 << 20):
    """GB/s of reading a file past the system's cache, by several threads."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    size = os.fstat(fd).st_size // piece * piece

    def read(at):
        with mmap.mmap(-1, piece) as buffer:
            return os.preadv(fd, [buffer], at)

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(read, range(0, size, piece)))
    os.close(fd)
    return done / (time.monotonic() - begin) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model")
    parser.add_argument("--shape", default="tinyllama-1.1b")
    parser.add_argument("--format", default="Q4_0")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--dir", help="where packed weights go meanwhile; removed at the end")
    parser.add_argument("--no-decode", action="store_true")
    args = parser.parse_args()
    args.model = args.model or race_models.shape(args.shape, args.format)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="packed-", dir=args.dir))
    try:
        measure(args, folder)
    finally:
        shutil.rmtree(folder)


def measure(args, folder):
    def cached(use):
        return ["--packed-cache", use, "--packed-cache-dir", str(folder)]

    starts = {}

    def note(name, seconds):
        starts.setdefault(name, []).append(seconds)
        print(f"{name}: first token after {seconds[0]:.3f} s, ended after {seconds[1]:.3f} s", flush=True)

    cold = True
    for number in range(args.rounds):
        first_token(args)  # the model's file is in memory
        note("plain, warm", first_token(args))
        note("first with --packed-cache read, warm", first_token(args, *cached("read")))
        for use in ("read", "map"):
            note(f"second, {use}, warm", first_token(args, *cached(use)))
        cold = cold and forget_files()
        if cold:
            note("plain, cold", first_token(args))
            for use in ("read", "map"):
                forget_files()
                note(f"second, {use}, cold", first_token(args, *cached(use)))
        packed = next(folder.glob("*.packed"))
        size = packed.stat().st_size
        speed = disk_speed(packed)
        print(f"disk {speed:.2f} GB/s", flush=True)
        starts.setdefault("disk", []).append(speed)
        if number + 1 < args.rounds:
            packed.unlink()
    print(f"\n{args.model}: {size / 1e9:.2f} GB packed; disk {statistics.median(starts.pop('disk')):.2f} GB/s")
    for name, seconds in starts.items():
        median = statistics.median(one[0] for one in seconds)
        print(f"{name:<40} {median:7.3f} s to the first token, {size / 1e9 / median:6.2f} GB/s; ends after {statistics.median(one[1] for one in seconds):.3f} s")
    if args.no_decode:
        return
    rates = {"plain": [], "read": [], "map": []}
    loads, memory = {}, []
    for _ in range(args.rounds):
        for use in rates:
            report = bench(args, *(cached(use) if use != "plain" else []))
            rates[use].append(report["rows"][0]["decode_tok_s"])
            loads.setdefault(use, []).append(report["load_s"])
            memory.append(report["host_read_gb_s"])
    print(f"memory {statistics.median(memory):.1f} GB/s")
    for use, values in rates.items():
        ratios = [value / plain for value, plain in zip(values, rates["plain"])]
        load = statistics.median(loads[use])
        print(f"{use:<6} loads in {load:.3f} s ({size / 1e9 / load:.1f} GB/s), decodes {statistics.median(values):.2f} tok/s, {statistics.median(ratios):.3f} of plain")


if __name__ == "__main__":
    main()
