#!/usr/bin/env python3
"""Races Ingot against llama.cpp: same file, same threads, same work, taking turns in one run.

    bench/race_llama_cpp.py --build-peer DIR     fetch and build llama.cpp there (once, about ten minutes), then stop
    bench/race_llama_cpp.py --peer-bin DIR/bin   race against the binaries there

Each contest runs both programs once a round, the order swapped from round to round, so that slow drift of the machine
cancels out. A figure is the median of the rounds; beside the ratio of the medians stand the lowest and the highest
ratio of a single round, which say how far to trust it. Standard library only.

Taking turns does not make up for a busy machine: llama.cpp's threads spin at their barriers and collapse when cores are
shared, Ingot's sleep, so the ratio then flatters Ingot severalfold. What others use of the cores is therefore measured
before every run; the race does not start on a busy machine, and a report says so when one became busy.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER_TARGETS = ["llama-bench", "llama-batched-bench", "llama-perplexity", "llama-quantize", "llama-tokenize",
                "llama-server"]


class RaceError(Exception):
    """One line for the user: what failed and what to do."""


def call(command, env=None, cwd=None, timeout=1800):
    """Runs a command and returns its standard output; a failure shows the end of what it said."""
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, env=env, cwd=cwd, timeout=timeout, text=True, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise RaceError(f"{command[0]} is not there; build it first (make build)") from error
    except subprocess.TimeoutExpired as error:
        raise RaceError(f"no end after {timeout} s: {shlex.join(command)}") from error
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise RaceError(f"exit {done.returncode} of: {shlex.join(command)}\n{tail}")
    return done.stdout


def cache_dir():
    """The rule of scripts/lib.sh: INGOT_CACHE, else XDG_CACHE_HOME/ingot, else ~/.cache/ingot."""
    if os.environ.get("INGOT_CACHE"):
        return pathlib.Path(os.environ["INGOT_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "ingot"


def cpu():
    """(model name, set of feature flags) of the first core."""
    name, flags = platform.processor() or platform.machine(), set()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = set(value.split())
                break
    except OSError:
        pass
    return name, flags


MOST_BUSY = 0.10  # share of all cores that others may use for a figure to count


def busy_share(seconds=0.5):
    """Share of all cores in use now, while this program sleeps; None where the system does not tell."""

    def ticks():
        fields = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # all, idle + waiting for a disk

    try:
        total, idle = ticks()
        time.sleep(seconds)
        total_after, idle_after = ticks()
    except (OSError, ValueError, IndexError):
        return None
    return 1 - (idle_after - idle) / max(1, total_after - total)


# ---- building the peer ----------------------------------------------------------------------------------------------


def peer_cmake_flags(flags):
    """What this machine's instruction sets allow. Never GGML_NATIVE: hosts exist that list AMX and fault on it."""
    options = {"GGML_NATIVE": "OFF", "LLAMA_CURL": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_UI": "OFF",
               "LLAMA_USE_PREBUILT_UI": "OFF", "CMAKE_BUILD_TYPE": "Release"}
    if platform.machine() in ("x86_64", "AMD64"):
        for flag, option in [("avx", "AVX"), ("avx2", "AVX2"), ("fma", "FMA"), ("f16c", "F16C"), ("bmi2", "BMI2")]:
            options["GGML_" + option] = "ON" if flag in flags else "OFF"
        if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"} <= flags:
            options["GGML_AVX512"] = "ON"
            for flag, option in [("avx512_vnni", "VNNI"), ("avx512vbmi", "VBMI"), ("avx512_bf16", "BF16")]:
                options["GGML_AVX512_" + option] = "ON" if flag in flags else "OFF"
        elif "avx_vnni" in flags:
            options["GGML_AVX_VNNI"] = "ON"
    elif sys.platform != "darwin":
        features = [name for flag, name in [("asimddp", "dotprod"), ("asimdhp", "fp16"), ("i8mm", "i8mm")] if flag in flags]
        options["GGML_CPU_ARM_ARCH"] = "+".join(["armv8.2-a", *features])
    return [f"-D{key}={value}" for key, value in options.items()]


def build_peer(folder, jobs):
    """Fetches the pinned source into `folder` and builds it; returns the folder of the binaries."""
    folder.mkdir(parents=True, exist_ok=True)
    binaries = folder / "build" / "bin"
    if all((binaries / name).exists() for name in PEER_TARGETS):
        return binaries
    requirement = (ROOT / "bench" / "peer.txt").read_text().splitlines()[-1]
    archive = folder / "llama_cpp_python-0.3.36.tar.gz"
    if not archive.exists():
        print(f"==> Fetching the source of llama.cpp ({requirement.split()[0]})", flush=True)
        call([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
              "--no-binary", ":all:", "--require-hashes", "-r", ROOT / "bench" / "peer.txt", "-d", folder])
    source = folder / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
    if not source.exists():
        with tarfile.open(archive) as tar:
            if hasattr(tarfile, "data_filter"):
                tar.extractall(folder, filter="data")
            else:
                tar.extractall(folder)
    print("==> Building llama.cpp (several minutes)", flush=True)
    call(["cmake", "-G", "Ninja", "-S", source, "-B", folder / "build", *peer_cmake_flags(cpu()[1])])
    call(["cmake", "--build", folder / "build", "-j", jobs, "--target", *PEER_TARGETS], timeout=7200)
    return binaries


# ---- the contests ---------------------------------------------------------------------------------------------------


class Race:
    def __init__(self, args):
        self.ingot = pathlib.Path(args.ingot)
        self.peer = pathlib.Path(args.peer_bin)
        self.threads = args.threads
        self.extra = shlex.split(args.ingot_args)
        self.peer_env = dict(os.environ)
        for variable in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            old = self.peer_env.get(variable)
            self.peer_env[variable] = str(self.peer) + (os.pathsep + old if old else "")
        self.busy = []  # share of the cores that others used, one a run
        self.bandwidth = []  # GB/s that ingot bench measured, one a run

    def ingot_row(self, model, batch, prompt, gen):
        """The one row of `ingot bench` for this batch size."""
        report = json.loads(call([self.ingot, "bench", "-m", model, "--batch", batch, "--prompt-len", prompt,
                                  "--gen-len", gen, "--threads", self.threads, "--json", *self.extra]))
        if report.get("host_read_gb_s"):
            self.bandwidth.append(report["host_read_gb_s"])
        return next(row for row in report["rows"] if row["batch"] == batch)

    def peer_bench(self, model, *work):
        """tok/s of the one test that llama-bench runs for `work`."""
        tests = json.loads(call([self.peer / "llama-bench", "-m", model, "-t", self.threads, "-r", 2, "-o", "json", *work],
                                env=self.peer_env))
        return tests[0]["avg_ts"]

    def peer_batched(self, model, batch, prompt, gen):
        """Decode tok/s over all sequences, from llama-batched-bench."""
        lines = call([self.peer / "llama-batched-bench", "-m", model, "-t", self.threads, "-tb", self.threads,
                      "-npp", prompt, "-ntg", gen, "-npl", batch, "-c", batch * (prompt + gen), "--output-format", "jsonl"],
                     env=self.peer_env).splitlines()
        return json.loads(next(line for line in lines if line.startswith("{")))["speed_tg"]

    def contests(self):
        """(name, Ingot's tok/s of a model, the peer's): the same tokens at the same depth of context."""
        return [
            ("prefill 512",
             lambda model: self.ingot_row(model, 1, 512, 1)["prefill_tok_s"],
             lambda model: self.peer_bench(model, "-p", 512, "-n", 0)),
            ("decode, batch 1",
             lambda model: self.ingot_row(model, 1, 128, 64)["decode_tok_s"],
             lambda model: self.peer_bench(model, "-p", 0, "-n", 64, "-d", 128)),
            ("decode, batch 16",
             lambda model: self.ingot_row(model, 16, 128, 32)["decode_tok_s"],
             lambda model: self.peer_batched(model, 16, 128, 32)),
        ]

    def requantized(self, model):
        """A Q4_0 copy of the model, made by the peer's own tool and kept in the cache: the format it is fastest at."""
        target = cache_dir() / "models" / (model.name.replace(".Q4_1", "").removesuffix(".gguf") + ".Q4_0.gguf")
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_suffix(".part")
            call([self.peer / "llama-quantize", "--allow-requantize", model, part, "Q4_0"], env=self.peer_env)
            part.rename(target)
        return target

    def run(self, models, rounds):
        """A result for each file and contest, the files and contests in turn within a round."""
        results = [{"file": label, "contest": name, "ingot": [], "peer": [], "run": (ingot, peer), "model": model}
                   for label, model in models for name, ingot, peer in self.contests()]
        for turn in range(rounds):
            for result in results:
                ours, theirs = result["run"]
                order = [("ingot", ours), ("peer", theirs)]
                for key, runner in order if turn % 2 == 0 else reversed(order):
                    self.busy.append(busy_share())
                    result[key].append(runner(result["model"]))
                print(f"    round {turn + 1}/{rounds}  {result['file']:5} {result['contest']:17}"
                      f" ingot {result['ingot'][-1]:8.1f}   llama.cpp {result['peer'][-1]:8.1f} tok/s", file=sys.stderr, flush=True)
        for result in results:
            del result["run"]
            result["model"] = result["model"].name
            ratios = [ours / theirs for ours, theirs in zip(result["ingot"], result["peer"])]
            result["ingot_median"] = statistics.median(result["ingot"])
            result["peer_median"] = statistics.median(result["peer"])
            result["ratio"] = result["ingot_median"] / result["peer_median"]
            result["ratio_low"], result["ratio_high"] = min(ratios), max(ratios)
        return results


def table(report):
    lines = ["| file | work | Ingot tok/s | llama.cpp tok/s | ratio | rounds' ratios |", "|---|---|---:|---:|---:|---|"]
    for row in report["results"]:
        lines.append(f"| {row['file']} | {row['contest']} | {row['ingot_median']:.0f} | {row['peer_median']:.0f} |"
                     f" **{row['ratio']:.2f}×** | {row['ratio_low']:.2f} to {row['ratio_high']:.2f} |")
    read = f", {report['host_read_gb_s']:.0f} GB/s read bandwidth" if report["host_read_gb_s"] else ""
    lines += ["", f"{report['cpu']}, {report['threads']} threads{read}; medians of {report['rounds']} rounds, {report['date']};"
                  f" Ingot {report['ingot']}, llama.cpp {report['peer']}.", f"Command: `{report['command']}`"]
    if report["busy_most"] is None:
        lines.append("How busy the machine was is not known on this system.")
    elif report["busy_most"] > MOST_BUSY:
        lines += ["", f"**Not a valid measurement:** others used up to {report['busy_most']:.0%} of the cores"
                      f" (median {report['busy_median']:.0%}). Run it again on a quiet machine."]
    return "\n".join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-peer", type=pathlib.Path, metavar="DIR", help="build llama.cpp in DIR and stop")
    parser.add_argument("--peer-bin", type=pathlib.Path, metavar="DIR", help="folder with llama-bench and its siblings")
    parser.add_argument("--peer-name", default="as built there", help="the peer's version, for the report")
    parser.add_argument("--ingot", default=ROOT / "build" / "bin" / "ingot", type=pathlib.Path, help="the ingot binary")
    parser.add_argument("--ingot-args", default="", help="more arguments for ingot bench, as one string")
    parser.add_argument("-m", "--model", type=pathlib.Path, help="a Q4_1 GGUF file (default: the default model)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
                        else os.cpu_count(), help="threads of both (default: the cores at hand, %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contest (default: 5)")
    parser.add_argument("--busy-ok", action="store_true", help="race on a busy machine too; the report is marked as not valid")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every figure there")
    args = parser.parse_args()
    if not args.build_peer and not args.peer_bin:
        parser.error("give --peer-bin DIR, or --build-peer DIR to make one")
    if args.rounds < 1 or args.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return args


def main():
    args = parse_args()
    if args.build_peer:
        print(build_peer(args.build_peer.resolve(), os.cpu_count() or 2))
        return
    for name in ("llama-bench", "llama-batched-bench", "llama-quantize"):
        if not (args.peer_bin / name).exists():
            raise RaceError(f"no {name} in {args.peer_bin}; make one with: {sys.argv[0]} --build-peer DIR")
    model = args.model or pathlib.Path(call([ROOT / "scripts" / "fetch_model.sh", "--path"]).strip())
    if not model.exists():
        raise RaceError(f"no model at {model}; run: make model")
    busy = busy_share(2.0)
    if busy is not None and busy > MOST_BUSY and not args.busy_ok:
        raise RaceError(f"others use {busy:.0%} of the cores: figures taken now would flatter Ingot and mean nothing; wait for a"
                        " quiet machine, or give --busy-ok to try the tool out")
    race = Race(args)
    results = race.run([("Q4_1", model), ("Q4_0", race.requantized(model))], args.rounds)
    try:
        commit = call(["git", "-C", ROOT, "describe", "--always", "--dirty"]).strip()
    except RaceError:
        commit = "of unknown commit"
    report = {
        "date": datetime.date.today().isoformat(), "cpu": cpu()[0], "threads": args.threads, "rounds": args.rounds,
        "ingot": commit, "peer": args.peer_name, "host_read_gb_s": statistics.median(race.bandwidth) if race.bandwidth else None,
        "command": f"bench/race_llama_cpp.py --peer-bin DIR --threads {args.threads} --rounds {args.rounds}", "results": results,
    }
    busy = [share for share in race.busy if share is not None]
    report["busy_median"] = statistics.median(busy) if busy else None
    report["busy_most"] = max(busy) if busy else None
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


def run(main_function):
    """Runs a benchmark as a program: what goes wrong is one line, Ctrl-C is quiet."""
    try:
        main_function()
    except RaceError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run(main)
