#!/usr/bin/env python3
"""Perplexity of one GGUF file by Ingot and by llama.cpp, over the same windows of the same tokens, every token scored.

  pip install llama-cpp-python numpy
  bench/perplexity_vs_llama_cpp.py MODEL.gguf [--text tests/fixtures/text/reading.txt] [--ctx 1024] [--ingot build/bin/ingot]

llama.cpp runs with its defaults (f16 cache, CPU). The tokens are Ingot's (`ingot tokenize`).
"""
import argparse
import json
import math
import pathlib
import re
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run_ingot(ingot, *arguments):
    return subprocess.run([ingot, *arguments], check=True, capture_output=True, text=True).stdout


def llama_cpp_nll(model, ids, ctx):
    from llama_cpp import Llama
    llama = Llama(model, n_ctx=ctx, n_batch=ctx, logits_all=True, verbose=False)
    if llama._model.add_bos_token():
        ids = [llama.token_bos(), *ids]
    total, tokens = 0.0, 0
    for start in range(0, len(ids) - 1, ctx):
        window = ids[start:start + ctx]
        if len(window) < 2:
            break
        llama.reset()
        llama.eval(window)
        logits = np.array(llama.scores[:len(window) - 1], dtype=np.float64)
        top = logits.max(axis=1)
        total += (np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top - logits[np.arange(len(window) - 1), window[1:]]).sum()
        tokens += len(window) - 1
    return total, tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "tests" / "fixtures" / "text" / "reading.txt")
    parser.add_argument("--ctx", type=int, default=1024)
    parser.add_argument("--ingot", default=str(ROOT / "build" / "bin" / "ingot"))
    args = parser.parse_args()
    given = ("-m", args.model, "-f", str(args.text))
    ours = json.loads(run_ingot(args.ingot, "perplexity", *given, "--ctx", str(args.ctx), "--device", "cpu", "--json"))
    ids = [int(id) for id in re.findall(r"\d+", run_ingot(args.ingot, "tokenize", *given))]
    nll, tokens = llama_cpp_nll(args.model, ids, args.ctx)
    print(f"ingot      {ours['perplexity']:.4f}  ({ours['tokens']} tokens)")
    print(f"llama.cpp  {math.exp(nll / tokens):.4f}  ({tokens} tokens)")


if __name__ == "__main__":
    main()
