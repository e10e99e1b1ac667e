"""What the races have in common: running programs, how busy the machine is, building the peer. Standard library only."""

import os
import pathlib
import platform
import shlex
import shutil
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


def peer_cmake_flags(flags, isa=""):
    """What this machine's instruction sets allow, or those of `isa`. Never GGML_NATIVE: hosts exist that list AMX and fault on it."""
    options = {"GGML_NATIVE": "OFF", "LLAMA_CURL": "OFF", "LLAMA_OPENSSL": "OFF", "LLAMA_BUILD_UI": "OFF",
               "LLAMA_USE_PREBUILT_UI": "OFF", "CMAKE_BUILD_TYPE": "Release"}
    if platform.machine() in ("x86_64", "AMD64"):
        if isa == "avx2":
            flags = {flag for flag in flags if "512" not in flag and "vnni" not in flag}
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


def build_peer(folder, jobs, isa=""):
    """Fetches the pinned source into `folder` and builds it; returns the folder of the binaries. With `isa` avx2 they are the same
    programs with their library of CPU kernels built for that."""
    if isa:
        return build_peer_kernels(folder, jobs, isa)
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


def build_peer_kernels(folder, jobs, isa):
    source_binaries = build_peer(folder, jobs)
    build = folder / f"build-{isa}"
    binaries = build / "bin"
    if (binaries / "complete").exists():
        return binaries
    print(f"==> Building llama.cpp's kernels for {isa} (minutes)", flush=True)
    source = folder / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
    call(["cmake", "-G", "Ninja", "-S", source, "-B", build, *peer_cmake_flags(cpu()[1], isa)])
    call(["cmake", "--build", build, "-j", jobs, "--target", "ggml-cpu"], timeout=7200)
    for file in source_binaries.iterdir():
        if not file.name.startswith("libggml-cpu"):
            (binaries / file.name).unlink(missing_ok=True)
            shutil.copy2(file, binaries / file.name, follow_symlinks=False)
    (binaries / "complete").touch()
    return binaries


def run(main_function):
    """Runs a benchmark as a program: what goes wrong is one line, Ctrl-C is quiet."""
    try:
        main_function()
    except RaceError as failure:
        print(f"error: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
