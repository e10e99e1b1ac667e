#!/usr/bin/env python3
"""Writes src/text/unicode_tables.inc: general categories and a few properties, as Hugging Face `tokenizers` sees them.

The library's regex engine and Rust's own character methods follow different Unicode versions, and a tokenizer must
agree with them code point by code point. So the tables are read out of the library itself by running one-character
patterns over every code point.

usage: make_unicode_tables.py > src/text/unicode_tables.inc     (needs: pip install tokenizers)
"""
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
EVERY = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def matching(pattern):
    """Code points that the one-character class `pattern` accepts."""
    return {ord(c) for c in normalizers.Replace(Regex("[^%s]" % pattern), "").normalize_str(EVERY)}


def ranges(points):
    out = []
    for p in sorted(points):
        if out and out[-1][1] == p - 1:
            out[-1][1] = p
        else:
            out.append([p, p])
    return out


def print_ranges(name, points):
    print(f"constexpr CodePointRange {name}[] = {{")
    row = ""
    for first, last in ranges(points):
        item = f"{{{first:#x},{last:#x}}},"
        if len(row) + len(item) > 116:
            print("    " + row)
            row = ""
        row += item
    print("    " + row)
    print("};")


def main():
    category = {c: "Cs" for c in range(0xD800, 0xE000)}
    for name in CATEGORIES:
        if name == "Cs":
            continue
        for c in matching(r"\p{%s}" % name):
            assert c not in category, (hex(c), name, category[c])
            category[c] = name
    assert len(category) == 0x110000

    print(f"// Made by scripts/make_unicode_tables.py from tokenizers {tokenizers.__version__}. Do not edit.")
    print("// clang-format off")
    print("// First code point and general category of each run, in order.")
    print("constexpr CategoryRun kCategoryRuns[] = {")
    row, previous = "", None
    for c in range(0x110000):
        if category[c] == previous:
            continue
        previous = category[c]
        item = f"{{{c:#x},{previous}}},"
        if len(row) + len(item) > 116:
            print("    " + row)
            row = ""
        row += item
    print("    " + row)
    print("};")

    numeric = set()
    split = pre_tokenizers.Digits(individual_digits=False)
    # Runs of numeric characters become pieces of their own; a letter between any two characters keeps them apart.
    for piece, _ in split.pre_tokenize_str("".join(c + "a" for c in EVERY)):
        if len(piece) == 1 and piece != "a":
            numeric.add(ord(piece))
    print("// Rust's char::is_numeric, the test of the Digits pre-tokenizer.")
    print_ranges("kNumericRanges", numeric)
    print(r"// \s")
    print_ranges("kSpaceRanges", matching(r"\s"))
    print(r"// \w of Rust's regex crate: Alphabetic, M, Nd, Pc, Join_Control")
    print_ranges("kWordRanges", matching(r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"))
    print(r"// \w of the pattern engine")
    print_ranges("kPatternWordRanges", matching(r"\w"))
    print("// clang-format on")
    n = {c for c, k in category.items() if k[0] == "N"}
    print(f"numeric differs from \\p{{N}} at {len(n ^ numeric)} code points", file=sys.stderr)


main()
