"""From the source of a kernel, as the software device leaves it with SOFTMETAL_AGX, to what Mesa says of its instructions."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import tempfile

from lower import lower

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLANG = os.environ.get("SOFTMETAL_CLANG", "clang++-19")
# As for NVIDIA's GPUs, but for the target: the one of clang's whose address spaces are inferred and whose private memory has one.
FLAGS = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx90a", "-nogpuinc", "-nogpulib", "-std=c++20", "-O3", "-fdeclspec",
         "-ffp-contract=off", "-fno-strict-aliasing", "-fno-slp-vectorize", "-fno-vectorize", "-fno-discard-value-names",
         "-Wno-everything", "-Werror=vla", "-fno-color-diagnostics", "-DSM_AGX", "-S", "-emit-llvm"]


def run(*command) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


class Tools:
    """clang, the translator to SPIR-V and Mesa's compiler; what they made is kept."""

    def __init__(self, folder: pathlib.Path, keep: pathlib.Path):
        self.translator, self.mesa, self.keep = folder / "llvm-spirv/bin/llvm-spirv", folder / "agx_kernel", keep
        parts = [(folder / "versions").read_bytes(), run(CLANG, "--version").encode(), " ".join(FLAGS).encode(),
                 (pathlib.Path(__file__).parent / "lower.py").read_bytes()]
        parts += [p.read_bytes() for p in sorted((ROOT / "softmetal/shim").rglob("*.h"))]
        self.identity = hashlib.sha256(b"".join(parts)).hexdigest()
        keep.mkdir(parents=True, exist_ok=True)

    def key(self, source: str, threads: tuple[int, int, int], threadgroup_bytes: int) -> str:
        """What is kept of a kernel; where it stands among others does not count."""
        lines = [line for line in source.split("\n") if line.strip() and not re.match(r"# \d", line)]
        return hashlib.sha256("\n".join([self.identity, f"{threads} {threadgroup_bytes}", *lines]).encode()).hexdigest()

    def figures(self, source: str, threads: tuple[int, int, int], threadgroup_bytes: int) -> dict:
        """Instructions by Mesa's names in "kinds", registers, spills and so on beside it."""
        kept = self.keep / f"{self.key(source, threads, threadgroup_bytes)}.json"
        if kept.exists():
            return json.loads(kept.read_text())
        with tempfile.TemporaryDirectory() as name:
            figures = self.compile(pathlib.Path(name), source, threads, threadgroup_bytes)
        kept.write_text(json.dumps(figures))
        return figures

    def compile(self, work: pathlib.Path, source: str, threads, threadgroup_bytes: int, listing: bool = False):
        (work / "kernel.cc").write_text(source)
        sizes = [f"-DSM_THREADS_{axis}={n}" for axis, n in zip("XYZ", threads)]
        run(CLANG, *FLAGS, *sizes, f"-DSM_THREADGROUP_BYTES={max(threadgroup_bytes, 16)}", "-I", ROOT / "softmetal/shim", work / "kernel.cc",
            "-o", work / "amd.ll")
        # Once more: what is folded late hides address spaces, and so do atomics, which are volatile in Metal.
        (work / "again.ll").write_text(re.sub(r"(?m)^( .*(?:atomic|atomicrmw|cmpxchg|weak)) volatile ", r"\1 ", (work / "amd.ll").read_text()))
        run(CLANG, "-x", "ir", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx90a", "-nogpulib", "-O3", "-fno-slp-vectorize", "-fno-vectorize",
            "-Wno-everything", "-S", "-emit-llvm", work / "again.ll", "-o", work / "twice.ll")
        (work / "kernel.ll").write_text(lower((work / "twice.ll").read_text(), threads))
        run(CLANG, "-x", "ir", "--target=spir64", "-Wno-everything", "-emit-llvm", "-c", work / "kernel.ll", "-o", work / "kernel.bc")
        run(self.translator, "--spirv-max-version=1.4", work / "kernel.bc", "-o", work / "kernel.spv")
        said = run(self.mesa, work / "kernel.spv", *(["--listing"] if listing else []))
        if listing:
            return said
        kinds, figures = (dict(item.split("=") for item in line.split()) for line in said.strip().split("\n"))
        return {"kinds": {k: int(v) for k, v in kinds.items()}, **{k: int(v) for k, v in figures.items()}}


def wanted(folder: pathlib.Path) -> list[dict]:
    """What a program asked for: a kernel, its constants, the threads of a threadgroup; as much threadgroup memory as its largest dispatch."""
    out = []
    for path in sorted(folder.glob("*.cc")):
        first, source = path.read_text().split("\n", 1)
        _, kernel, *constants = first.split()
        dispatches = path.with_suffix(".dispatches")
        if not dispatches.exists():
            continue
        largest = {}
        for line in dispatches.read_text().splitlines():
            *threads, bytes_ = map(int, line.split())
            largest[tuple(threads)] = max(largest.get(tuple(threads), 0), bytes_)
        for threads, bytes_ in sorted(largest.items()):
            out.append({"kernel": kernel, "constants": dict(c.split("=") for c in constants), "threads": threads, "bytes": bytes_,
                        "source": source})
    return out


def compile_all(tools: Tools, kernels: list[dict], jobs: int, progress) -> list[dict]:
    """The same with "figures", or with "error": what refused it."""
    def one(kernel: dict) -> dict:
        try:
            return {**kernel, "figures": tools.figures(kernel["source"], kernel["threads"], kernel["bytes"])}
        except (RuntimeError, ValueError) as error:
            return {**kernel, "error": str(error)}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        out = []
        for done in pool.map(one, kernels):
            out.append(done)
            progress(len(out), len(kernels))
        return out
