#!/usr/bin/env python3
"""Compares Ingot's token ids with those of Hugging Face `tokenizers`, text by text, on the hard corpus and on random text.

usage: compare_tokenizers.py BUILD_DIR TOKENIZER [TOKENIZER ...] [--random N]
TOKENIZER: a vocabulary GGUF or a tokenizer folder. Needs: pip install tokenizers gguf, and ninja tokenizer_bench.
"""
import argparse
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import hf_from_gguf
import tokenizer_corpus


def main():
    args = argparse.ArgumentParser()
    args.add_argument("build")
    args.add_argument("tokenizers", nargs="+")
    args.add_argument("--random", type=int, default=20000)
    args = args.parse_args()
    texts = tokenizer_corpus.corpus() + [t.encode() for t in tokenizer_corpus.random_texts(args.random, 99)]
    bad = 0
    with tempfile.NamedTemporaryFile() as f:
        for text in texts:
            f.write(struct.pack("<I", len(text)) + text)
        f.flush()
        for path in args.tokenizers:
            ours = subprocess.run([os.path.join(args.build, "bin/tokenizer_bench"), path, f.name, "records"],
                                  capture_output=True, check=True, text=True).stdout.splitlines()
            hf = hf_from_gguf.load(path)
            wrong = 0
            for text, line in zip(texts, ours, strict=True):
                want = hf.encode(text.decode(errors="replace"), add_special_tokens=False).ids
                got = [int(x) for x in line.split()]
                if want != got:
                    wrong += 1
                    if wrong <= 3:
                        at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
                        print(f"  {text[:80]!r}: token {at}: want {want[at:at+6]} {[hf.id_to_token(i) for i in want[at:at+6]]} got {got[at:at+6]} {[hf.id_to_token(i) for i in got[at:at+6]]}")
            print(f"{os.path.basename(path)}: {len(texts) - wrong} of {len(texts)} texts agree")
            bad += wrong
    sys.exit(bad > 0)


main()
