#!/usr/bin/env python3
"""What quantized arithmetic costs: perplexity of the same file by Ingot, by llama.cpp, and in fp32 over its dequantized weights.

    bench/perplexity_vs_llama_cpp.py --peer-bin DIR [--formats Q4_0,...] [--text FILE]... [--ctx 512] [--chunks 16]

The files are those of the race (race_models.py). For fp32 the weights of a file are written out as f32 by llama-quantize and run by
Ingot with f32 activations and an f32 cache, which rounds nothing but sums; llama.cpp over the first of these f32 files says whether that
is right.
All score the second half of each window, as llama-perplexity does. Standard library only.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import race_models
import racing as base


def ingot_perplexity(args, model, text, *more):
    report = json.loads(base.call([args.ingot, "perplexity", "-m", model, "-f", text, "--ctx", args.ctx, "--score-from", args.ctx // 2 + 1,
                                   "--chunks", args.chunks, "--device", "cpu", "--threads", args.threads, "--json", *more], timeout=7200))
    return report["perplexity"], report["tokens"]


def peer_perplexity(args, model, text, env):
    done = subprocess.run([str(word) for word in (args.peer_bin / "llama-perplexity", "-m", model, "-f", text, "-c", args.ctx, "-b", args.ctx,
                                                  "--chunks", args.chunks, "-t", args.threads)],
                          env=env, text=True, capture_output=True, check=False)
    found = re.search(r"Final estimate: PPL = ([0-9.]+)", done.stdout + done.stderr)
    if not found:
        raise base.RaceError(f"llama-perplexity said no perplexity of {model}:\n{(done.stdout + done.stderr)[-800:]}")
    return float(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-bin", type=pathlib.Path, required=True)
    parser.add_argument("--formats", default=",".join(race_models.FORMATS))
    parser.add_argument("--text", type=pathlib.Path, action="append", help="several are joined (default: a fixture of the tests)")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--chunks", type=int, default=16)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--ingot", default=base.ROOT / "build" / "bin" / "ingot", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every figure there")
    args = parser.parse_args()
    env = dict(os.environ, LD_LIBRARY_PATH=str(args.peer_bin))
    default_model = pathlib.Path(base.call([base.ROOT / "scripts" / "fetch_model.sh", "--path"]).strip())
    texts = args.text or [base.ROOT / "tests" / "fixtures" / "text" / "reading.txt"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text.txt"
        text.write_text("\n".join(path.read_text() for path in texts))
        for name in args.formats.split(","):
            model = race_models.smollm2(name, default_model, args.peer_bin / "llama-quantize", env)
            wide = pathlib.Path(folder) / "f32.gguf"
            base.call([args.peer_bin / "llama-quantize", "--allow-requantize", model, wide, "F32"], env=env)
            exact, tokens = ingot_perplexity(args, wide, text, "--kv-dtype", "f32")
            row = {"format": name, "tokens": tokens, "fp32": exact, "ingot": ingot_perplexity(args, model, text)[0],
                   "peer": peer_perplexity(args, model, text, env)}
            if not rows:
                row["fp32_peer"] = peer_perplexity(args, wide, text, env)
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
            wide.unlink()
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    print("| format | fp32 | Ingot | off by | llama.cpp | off by |\n|---|---:|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {row['format']} | {row['fp32']:.4f} | {row['ingot']:.4f} | {row['ingot'] / row['fp32'] - 1:+.3%} |"
              f" {row['peer']:.4f} | {row['peer'] / row['fp32'] - 1:+.3%} |")
    print(f"\n{rows[0]['tokens']} tokens scored, the second half of each of {args.chunks} windows of {args.ctx}. fp32 by llama.cpp,"
          f" {rows[0]['format']}: {rows[0]['fp32_peer']:.4f}.")


if __name__ == "__main__":
    base.run(main)
