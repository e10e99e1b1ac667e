#!/usr/bin/env python3
"""Instructions a multiply of Arm kernels, counted in their innermost loops as they were compiled.

    bench/neon_instructions.py OBJECT... [--match WORD] [--objdump aarch64-linux-gnu-objdump]

Of each function the loop (from the target of a backward branch to the branch) with the most multiplications for its length counts that
holds no other loop with any. A row: instructions of the loop, multiplications of 8-bit integers or floats in it, and instructions a 64
multiplications. Standard library only.
"""
import argparse
import re
import subprocess

# Multiplications of one instruction, by its name and the arrangement of its first operand.
MULTIPLIES = {("sdot", "4s"): 16, ("udot", "4s"): 16, ("usdot", "4s"): 16, ("smmla", "4s"): 32, ("ummla", "4s"): 32, ("usmmla", "4s"): 32,
              ("smull", "8h"): 8, ("smull2", "8h"): 8, ("smlal", "8h"): 8, ("smlal2", "8h"): 8, ("fmla", "4s"): 4, ("fmul", "4s"): 0,
              ("bfdot", "4s"): 8, ("bfmmla", "4s"): 16, ("fmla", "8h"): 8}
BRANCHES = re.compile(r"^(b|b\.\w+|cbn?z|tbn?z)$")


def functions(objdump, path):
    """(name, [(address, mnemonic, operands)]) of each function."""
    text = subprocess.run([objdump, "-d", "-C", "--no-show-raw-insn", path], check=True, capture_output=True, text=True).stdout
    name, body = None, []
    for line in text.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
        if head:
            if body:
                yield name, body
            name, body = head.group(1), []
            continue
        found = re.match(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$", line)
        if found:
            body.append((int(found.group(1), 16), found.group(2), found.group(3)))
    if body:
        yield name, body


def multiplications(mnemonic, operands):
    arrangement = re.match(r"v\d+\.(\w+)", operands)
    return MULTIPLIES.get((mnemonic, arrangement.group(1) if arrangement else ""), 0)


def loops(body):
    """(instructions, 8-bit and float multiplications) of each loop that no loop with multiplications lies in."""
    index = {address: i for i, (address, _, _) in enumerate(body)}
    spans = []
    for i, (address, mnemonic, operands) in enumerate(body):
        target = re.search(r"([0-9a-f]+) <", operands)
        if BRANCHES.match(mnemonic) and target and int(target.group(1), 16) in index and int(target.group(1), 16) < address:
            first = index[int(target.group(1), 16)]
            counts = [(multiplications(m, o), m) for _, m, o in body[first:i + 1]]
            integers = sum(n for n, m in counts if not m.startswith(("fm", "bf")))
            floats = sum(n for n, m in counts if m.startswith(("fm", "bf")))
            if integers + floats:
                spans.append((first, i, integers or floats))
    for first, last, count in spans:
        if not any(f >= first and l <= last and (f, l) != (first, last) for f, l, _ in spans):
            yield last - first + 1, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="+")
    parser.add_argument("--match", default="", help="only functions with this in their name")
    parser.add_argument("--objdump", default="aarch64-linux-gnu-objdump")
    args = parser.parse_args()
    for path in args.objects:
        for name, body in functions(args.objdump, path):
            if args.match not in name:
                continue
            found = list(loops(body))
            if found:
                length, count = max(found, key=lambda loop: loop[1])
                print(f"{length:6} {count:6} {64 * length / count:7.2f}  {name}")


if __name__ == "__main__":
    main()
