#!/usr/bin/env python3
"""Writes src/text/unicode_tables.inc: where Hugging Face `tokenizers` sees another general category than utf8proc.

The library follows one Unicode version, utf8proc another on every system, and a tokenizer must agree with the library
code point by code point. So the categories are read out of it by running one-character patterns over every code point,
and what differs from the oldest or the newest Unicode that utf8proc may follow is written down.

usage: python3.11 make_unicode_tables.py > src/text/unicode_tables.inc     (needs: pip install tokenizers unicodedata2)
"""
import unicodedata  # of Python 3.11: Unicode 14, as utf8proc 2.7

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co").split()
EVERY = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def matching(pattern):
    """Code points that the one-character class `pattern` accepts."""
    return {ord(c) for c in normalizers.Replace(Regex("[^%s]" % pattern), "").normalize_str(EVERY)}


def of(category, *names):
    return {c for c, name in category.items() if any(name.startswith(n) for n in names)}


def main():
    category = {c: "Cs" for c in range(0xD800, 0xE000)}
    for name in CATEGORIES:
        if name != "Cs":
            category.update((c, name) for c in matching(r"\p{%s}" % name))
    assert len(category) == 0x110000

    # What unicode.cc makes of the categories.
    space = of(category, "Z") | {9, 10, 11, 12, 13, 0x85}
    circled = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)}
    word = of(category, "L", "M", "Nd", "Nl", "Pc") | circled
    assert space == matching(r"\s")
    assert word == matching(r"\w")
    assert word | {0x200C, 0x200D} == matching(r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}")
    # Rust's char::is_numeric, the test of the Digits pre-tokenizer: runs of numeric characters become pieces of their
    # own; a letter between any two characters keeps them apart. Rust's Unicode is newer than the patterns'.
    pieces = pre_tokenizers.Digits(individual_digits=False).pre_tokenize_str("".join(c + "a" for c in EVERY))
    numeric = {ord(piece) for piece, _ in pieces if len(piece) == 1 and piece != "a"}
    assert numeric == of(category, "N") | {*range(0x11DE0, 0x11DEA), *range(0x16FF4, 0x16FF7)}

    runs = []
    for c in range(0x110000):
        others = unicodedata.category(chr(c)), unicodedata2.category(chr(c))
        if others == (category[c], category[c]):
            continue
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == category[c]:
            runs[-1][1] = c
        else:
            runs.append([c, c, category[c]])

    print(f"// Made by scripts/make_unicode_tables.py from tokenizers {tokenizers.__version__}, Unicode "
          f"{unicodedata.unidata_version} and {unicodedata2.unidata_version}. Do not edit.")
    print("// clang-format off")
    print("constexpr CategoryRange kCategoryRanges[] = {")
    row = ""
    for first, last, name in runs:
        item = f'{{{first:#x},{last:#x},"{name}"}},'
        if len(row) + len(item) > 116:
            print("    " + row)
            row = ""
        row += item
    print("    " + row)
    print("};")
    print("// clang-format on")


main()
