#!/usr/bin/env python3
"""Makes a CUDA build of torch importable without CUDA's libraries: for the tests of the vLLM plugin, whose torch stays on the CPU.

    python scripts/torch_without_cuda.py SITE_PACKAGES

PyPI's torch for Linux asks for gigabytes of NVIDIA's libraries. The dynamic linker wants every one of them before `import torch` goes
anywhere, but nothing in them is called where there is no NVIDIA GPU. So what is missing is read from the libraries that are there,
and stands in: an empty library for every missing name, and one that defines every missing symbol, as a function that ends the process
with the symbol's name. The CUDA runtime must be the real one (under a megabyte): torch does ask it, and hears that there is no device.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# What every Linux has. A CUDA of the system's is not torch's: it may be another version, and is not on every machine.
SYSTEM = ("ld-linux", "libc.", "libdl.", "libgcc_s.", "libm.", "libpthread.", "librt.", "libstdc++.", "libutil.")
ABSENT = "libingot_absent.so"  # the missing symbols, whichever library they were in


def lines_of(*command) -> list[str]:
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout.splitlines()


def needed(path: Path) -> set[str]:
    return {line.split()[1] for line in lines_of("objdump", "-p", path) if line.strip().startswith("NEEDED")}


def symbols(path: Path, option: str) -> set[str]:
    """Dynamic symbols, without their versions; undefined ones that are weak may stay so."""
    entries = (line.split()[-2:] for line in lines_of("nm", "-D", option, path))
    return {name.split("@")[0] for kind, name in entries if kind not in ("w", "v")}


def system_libraries() -> dict[str, Path]:
    entries = (line.strip().split(" => ") for line in lines_of("/sbin/ldconfig", "-p"))
    return {e[0].split()[0]: Path(e[1]) for e in entries if e[0].startswith(SYSTEM) and "64" in e[0].split(" ", 1)[1]}


def compile_library(path: Path, source: str, *options) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".c") as file:
        file.write(source)
        file.flush()
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-fno-builtin", "-w", f"-Wl,-soname,{path.name}"]
        subprocess.run([*command, "-o", path, file.name, *options], check=True)


def main(site_packages: Path) -> None:
    folder = site_packages / "torch" / "lib"
    libraries = {path.name: path for path in [*(site_packages / "nvidia").glob("*/lib/*.so*"), *folder.glob("*.so*")]}
    system = system_libraries()
    # From what Python loads on to all that asks for; plug-ins that torch opens by name are met on the way or never.
    waiting, loaded, missing = [*(site_packages / "torch").glob("_C.*.so"), folder / "libtorch_global_deps.so"], {}, set()
    while waiting:
        path = waiting.pop()
        loaded[path.name] = path
        for name in needed(path) - loaded.keys():
            if found := libraries.get(name) or system.get(name):
                waiting.append(found)
            else:
                missing.add(name)
    wanted = set().union(*(symbols(path, "--undefined-only") for name, path in loaded.items() if name not in system))
    wanted -= set().union(*(symbols(path, "--defined-only") for path in loaded.values()))
    wanted = sorted(name for name in wanted if not name.lstrip("_").startswith("Py"))  # those are in the interpreter
    # The linker insists on symbol versions in a library of the name they were linked from: so every symbol is in one of another
    # name, which the empty ones load.
    source = ["int dprintf(int, const char *, ...);", "void abort(void);"]
    source += ['static void absent(const char *name) { dprintf(2, "torch without CUDA: %s was called\\n", name); abort(); }']
    source += [f'void {name}(void) {{ absent("{name}"); }}' for name in wanted]
    compile_library(folder / ABSENT, "\n".join(source) + "\n")
    for name in sorted(missing):
        compile_library(folder / name, "", "-Wl,--no-as-needed", folder / ABSENT, "-Wl,-rpath,$ORIGIN")
    print(f"{len(wanted)} symbols are absent, and these libraries: {' '.join(sorted(missing))}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
