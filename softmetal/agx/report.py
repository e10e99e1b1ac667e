#!/usr/bin/env python3
"""What Apple's registers say: every kernel that the shipped configs ask for on Apple GPUs, taken to the instructions of M1 and M2 by Mesa.

  report.py                      the table, beside the figures of the last commit, on stdout
  report.py --write              ... and into docs/registers.md, the worst variant of each kernel into docs/metal.md; which kernels it was
                                 goes into reported.txt, so that the suite sees when they are others
  report.py --only linear        kernels whose names have this in them
  report.py --metal FILE [THREADS]   the kernels of one file instead, without constants, in threadgroups of THREADS (256)
  report.py --only NAME --listing    Mesa's listing of the first of them

Run by scripts/agx_report.sh, which fetches and builds what it needs. Ends with status 3 where a kernel spills, does not compile or is
dispatched with more threads than its registers allow.
"""
import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import reported
import table
from kernels import ROOT, Tools, compile_all, run, wanted

BEGIN, END = "<!-- agx-report: begin -->\n", "<!-- agx-report: end -->\n"
WHOLE, SUMMARY = "docs/registers.md", "docs/metal.md"
CONFIGS = ROOT / "tests/fixtures/configs"
DTYPES = ("bf16", "q8_0", "q4_k")
# What kernels do not depend on, so that it takes seconds: but the last layer has no prefill rows.
SMALL = {"num_hidden_layers": 2, "vocab_size": 2048, "bos_token_id": 1, "eos_token_id": 2}
# Beside the shipped configs: heads of 256, which Gemma has, a cache of integers, and experts that are few enough to have tiles of rows
# in a step of 256.
OTHERS = [
    ("TinyLlama-1.1B", "wide-heads", {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 2}, DTYPES[:1]),
    ("Qwen3-30B-A3B", "few-experts", {"num_experts": 8, "num_experts_per_tok": 2}, DTYPES),
]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ask(ingot: pathlib.Path, model: pathlib.Path, folder: pathlib.Path, dtype: str, *more: str) -> None:
    """Loads a model on the device that leaves kernels in `folder`; loading rehearses every kind of step."""
    environment = {**os.environ, "SOFTMETAL_AGX": str(folder), "SOFTMETAL_FAMILY": "8"}
    done = subprocess.run([ingot, "bench", "-m", model, "--load-format", "dummy", "--dtype", dtype, "--device", "metal", "--batch", "1,64",
                           "--prompt-len", "256", "--gen-len", "2", *more], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {model.name} in {dtype}: {done.stderr.strip()[-2000:]}")


def gather(ingot: pathlib.Path, folder: pathlib.Path, work: pathlib.Path) -> None:
    """All that the shipped configs, and those beside them, ask for."""
    models = [(path.name, "", {}, DTYPES) for path in sorted(CONFIGS.iterdir())]
    for name, suffix, changes, dtypes in models + OTHERS:
        config = json.loads((CONFIGS / name / "config.json").read_text()) | SMALL | changes
        model = work / "-".join(filter(None, [name, suffix]))
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        for dtype in dtypes:
            say(f"    {model.name} {dtype}")
            ask(ingot, model, folder, dtype)
        if name == "TinyLlama-1.1B" and not changes:
            ask(ingot, model, folder, "bf16", "--kv-dtype", "int8")


def last_table() -> list[dict]:
    shown = subprocess.run(["git", "show", f"HEAD:{WHOLE}"], cwd=ROOT, capture_output=True, text=True)
    return table.from_markdown(shown.stdout)


def versions(tools: pathlib.Path) -> str:
    clang = run("clang++-19", "--version").split("\n")[0].split(" version ")[-1].split(" ")[0]
    return f"{(tools / 'versions').read_text().strip()}, clang {clang}"


def write(document: str, rows: list[dict], said: str) -> None:
    path = ROOT / document
    before, rest = path.read_text().split(BEGIN)
    after = rest.split(END)[1]
    date = datetime.date.today()
    path.write_text(f"{before}{BEGIN}{date.day} {date:%B} {date.year}; {said}.\n\n{table.to_markdown(rows)}{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", type=pathlib.Path, required=True, help="folder that scripts/fetch_agx.sh made")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--listing", action="store_true")
    parser.add_argument("--metal", nargs="+", metavar="FILE [THREADS]")
    options = parser.parse_args()
    if options.write and (options.only or options.metal):
        sys.exit("error: --write is of all kernels: leave --only and --metal out")
    tools = Tools(options.tools, options.tools.parent / "agx-kernels")
    work = pathlib.Path(tempfile.mkdtemp())
    try:
        folder = work / "kernels"
        folder.mkdir()
        if options.metal:
            run(options.build / "bin/softmetal_cc", "--agx", folder, options.metal[0])
            threads = options.metal[1] if len(options.metal) > 1 else "256"
            for path in folder.glob("*.cc"):
                path.with_suffix(".dispatches").write_text(f"{threads} 1 1 0\n")
        else:
            say("==> Asking for the kernels of the shipped configs")
            gather(options.build / "bin/ingot", folder, work)
        kernels = [k for k in wanted(folder) if options.only in k["kernel"]]
        if options.listing:
            first = kernels[0]
            print(tools.compile(work, first["source"], first["threads"], first["bytes"], listing=True))
            return
        say(f"==> Compiling {len(kernels)} kernels")
        shown = sys.stderr.isatty()
        compiled = compile_all(tools, kernels, os.cpu_count() or 2,
                               lambda n, of: print(f"\r    {n} of {of}", end="\n" if n == of else "", file=sys.stderr) if shown else None)
    finally:
        shutil.rmtree(work)
    lines = table.compare(table.rows(compiled), last_table())
    print(table.to_markdown(lines))
    faults = table.faults(lines)
    for fault in faults:
        say(f"fault: {fault}")
    say(f"{len(lines)} kernels, {len(faults)} faults; {versions(options.tools)}")
    if options.write:
        write(WHOLE, lines, versions(options.tools))
        write(SUMMARY, table.worst(lines), versions(options.tools))
        reported.write(kernels)
    sys.exit(3 if faults else 0)


if __name__ == "__main__":
    main()
