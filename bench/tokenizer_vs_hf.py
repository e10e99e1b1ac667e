#!/usr/bin/env python3
"""Races Ingot's tokenizer against Hugging Face `tokenizers`, one thread each, taking turns on the same text.

The text is cut into prompts of about 8 KB; speed is MB for each second of CPU time, so that other work on the machine
does not count.

usage: tokenizer_vs_hf.py BUILD_DIR TEXT_FILE TOKENIZER [TOKENIZER ...] [--rounds N]
TOKENIZER: a vocabulary GGUF or a folder with tokenizer.json. Needs: pip install tokenizers gguf, and ninja tokenizer_bench.
Prints MB/s of each (best of all rounds) and the ratio; stops when the ids differ.
"""
import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../scripts"))
import hf_from_gguf


def cut(data):
    """As tokenizer_bench does."""
    parts = []
    while data:
        line = data.find(b"\n", 8000)
        length = len(data) if line < 0 else line + 1
        parts.append(data[:length])
        data = data[length:]
    return parts


def main():
    args = argparse.ArgumentParser()
    args.add_argument("build")
    args.add_argument("text")
    args.add_argument("tokenizers", nargs="+")
    args.add_argument("--rounds", type=int, default=3)
    args = args.parse_args()
    program = os.path.join(args.build, "bin/tokenizer_bench")
    with open(args.text, "rb") as f:
        data = f.read()
    parts = cut(data)
    texts = [p.decode(errors="replace") for p in parts]
    failed = False
    for path in args.tokenizers:
        hf = hf_from_gguf.load(path)
        ours = theirs = 0.0
        want = [hf.encode(t, add_special_tokens=False).ids for t in texts]
        with tempfile.NamedTemporaryFile() as f:
            for part in parts:
                f.write(struct.pack("<I", len(part)) + part)
            f.flush()
            out = subprocess.run([program, path, f.name, "records"], capture_output=True, check=True, text=True).stdout
        if want != [[int(i) for i in line.split()] for line in out.splitlines()]:
            print(f"{os.path.basename(path)}: token ids differ")
            failed = True
            continue
        for _ in range(args.rounds):
            result = subprocess.run([program, path, args.text, "1"], capture_output=True, check=True, text=True).stdout
            ours = max(ours, json.loads(result)["mb_s"])
            end = time.process_time() + 1
            while time.process_time() < end:
                start = time.process_time()
                # The plain call computes offsets too; the batch call without them is the library's fastest.
                hf.encode_batch_fast(texts, add_special_tokens=False)
                theirs = max(theirs, len(data) / 1e6 / (time.process_time() - start))
        print(f"{os.path.basename(path)}: {len(data) / 1e6:.1f} MB, {sum(map(len, want))} tokens; ingot {ours:.1f} MB/s, tokenizers {theirs:.1f} MB/s, ratio {ours / theirs:.2f}")
    sys.exit(failed)


main()
