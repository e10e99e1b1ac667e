#!/usr/bin/env python3
"""Checks every #include of the project's own headers against the table of docs/architecture.md.

    scripts/check_includes.py              the tree; exits 1 and names each line that the table does not allow
    scripts/check_includes.py --root DIR   another tree

A row of the table names a folder, or one file, and what it may include: folders with what is below them (`core/`), the headers of a folder alone
(`backend/*`), or single ones. A folder may always include itself; a file belongs to the row with the longest name that it begins with.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = "docs/architecture.md"
SOURCES = {".h", ".cc", ".inl", ".mm"}
ROW = re.compile(r"^\| `([\w/.]+?)/?` \|[^|]*\|([^|]*)\|$", re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+[<"]([\w./-]+)[>"]', re.MULTILINE)


def read_table(text):
    """Folder → prefixes of headers it may include, as they are written in an #include."""
    table = {}
    for folder, allowed in ROW.findall(text):
        table[folder] = [name.removesuffix("/") for name in re.findall(r"`([\w./*]+)`", allowed)]
    return table


def spelled(folder):
    """A folder as #include lines spell it: those below src/ and include/ are on the compiler's path."""
    return re.sub(r"^(?:src|include|python/src|softmetal/include)/", "", folder)


def owner(table, path):
    rows = [name for name in table if path == name or path.startswith(name + "/")]
    return max(rows, key=len, default=None)


def allows(names, header):
    """Whether one of the names of a row, or the folder itself, stands for the header."""
    folder = header.rpartition("/")[0]
    return any(folder == n[:-2] if n.endswith("/*") else header == n or header.startswith(n + "/") for n in names)


def faults(root):
    """(path, line, message) of each include that the table does not allow, and of each folder that it does not name."""
    table = read_table((root / TABLE).read_text())
    if not table:
        return [(TABLE, 0, "has no table of folders")]
    tops = {spelled(folder).split("/")[0] for folder in table}
    found = []
    for top in ("include", "src", "softmetal", "python"):
        for file in sorted((root / top).rglob("*")):
            path = file.relative_to(root).as_posix()
            if file.suffix not in SOURCES:
                continue
            folder = owner(table, path)
            if folder is None:
                found.append((path, 0, f"lies in a folder that the table of {TABLE} does not name"))
                continue
            text = file.read_text()
            for match in INCLUDE.finditer(text):
                header = match[1]
                ours = "/" in header and header.split("/")[0] in tops
                if ours and not allows([spelled(folder), *table[folder]], header):
                    line = text.count("\n", 0, match.start()) + 1
                    found.append((path, line, f"{folder if file.name in folder else folder + '/'} may not include {header}"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    found = faults(parser.parse_args().root)
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
