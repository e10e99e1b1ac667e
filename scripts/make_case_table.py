#!/usr/bin/env python3
"""Writes src/text/jinja/case_table.inc: the characters whose upper or title case is more than one character.

Python's str.upper() and str.title() use Unicode's full case mapping, utf8proc only the one-to-one part of it.
"""
import pathlib


def row(c):
    def text(s):
        return "".join(f"\\U{ord(x):08x}" for x in s)

    return f'{{0x{c:04x}, U"{text(chr(c).upper())}", U"{text(chr(c).title())}"}},'


def main():
    out = pathlib.Path(__file__).resolve().parent.parent / "src/text/jinja/case_table.inc"
    rows = [row(c) for c in range(0x110000) if len(chr(c).upper()) > 1 or len(chr(c).title()) > 1]
    out.write_text("// Written by scripts/make_case_table.py: character, upper case, title case.\n" + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
