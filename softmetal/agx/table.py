"""The table of the report: from figures to lines of Markdown, and back."""
import re

# Mesa's names of instructions to the kinds of the table, by how they begin; what is not here counts as "integer".
KINDS = [
    ("matrix", ("simd_matrix",)),
    ("float", ("fadd", "ffma", "fmul", "hadd", "hfma", "hmul", "fcmp", "floor", "ceil", "trunc", "round", "rcp", "rsqrt", "srsqrt", "log2",
               "exp2", "sin_pt", "convert")),
    ("device", ("device_", "atomic", "uniform_store")),
    ("threadgroup", ("local_",)),
    ("stack", ("stack_",)),
    ("simd", ("simd_", "quad_", "shuffle", "ballot", "icmp_ballot")),
    ("move", ("mov", "swap", "collect", "split", "phi", "preload", "get_sr")),
    ("control", ("wait", "jmp_", "pop_exec", "push_exec", "if_", "else_", "while_", "break", "stop", "threadgroup_barrier", "memory_barrier",
                 "begin_cf", "logical_end", "image_")),
]
COLUMNS = ["matrix", "float", "integer", "device", "threadgroup", "simd", "move", "control"]
HEADER = ["kernel", "constants", "instructions", *COLUMNS, "registers", "spills : fills", "threads", "of at most", "bytes", "occupancy", "before"]

# packed_format() of the shipped dtypes, for reading: kernels/params.h has how the numbers are made.
FORMATS = {"1": "f16", "2": "bf16", "8392832": "q8_0", "12352": "q4_k"}

MOST_THREADS = 1024        # of a core
THREADGROUP_BYTES = 61440  # of a core: 60 KiB, as others measured on M1; Mesa models none


def kind_of(name: str) -> str:
    for kind, beginnings in KINDS:
        if name.startswith(beginnings):
            return kind
    return "integer"


def occupancy(threads: int, most_threads: int, threadgroup_bytes: int) -> int:
    """Percent of the threads a core can hold: as many whole threadgroups as registers and threadgroup memory have room for."""
    groups = most_threads // threads
    if threadgroup_bytes > 0:
        groups = min(groups, THREADGROUP_BYTES // threadgroup_bytes)
    return 100 * groups * threads // MOST_THREADS


def short_constants(kernels: list[dict]) -> list[str]:
    """Names without what all of a kernel's have in common, values without C++'s suffixes; those that never differ are left out."""
    values: dict[str, dict[str, set]] = {}
    for k in kernels:
        for name, value in k["constants"].items():
            values.setdefault(k["kernel"], {}).setdefault(name, set()).add(value)
    out = []
    for k in kernels:
        mine = values.get(k["kernel"], {})
        words = []
        for name, value in k["constants"].items():
            # Two matrices of one product nearly always have one format.
            if len(mine[name]) < 2 or (name.endswith("_FORMAT_UP") and value == k["constants"].get(name.removesuffix("_UP"))):
                continue
            value = value.rstrip("u")
            label = name.split("_", 1)[-1].lower().replace("_", " ")
            if label.startswith("format"):
                value = FORMATS.get(value, value)
            if value in ("true", "false"):
                words += [label] if value == "true" else []
            else:
                words.append(f"{label} {value}")
        out.append(", ".join(words))
    return out


def rows(kernels: list[dict]) -> list[dict]:
    """One a kernel, in the columns of HEADER but for "before"; {"kernel", "constants", "error"} of one that did not compile."""
    out = []
    for k, constants in zip(kernels, short_constants(kernels)):
        row = {"kernel": k["kernel"], "constants": constants}
        if "error" in k:
            out.append({**row, "error": k["error"]})
            continue
        f = k["figures"]
        counts = dict.fromkeys(COLUMNS, 0)
        for name, count in f["kinds"].items():
            if (kind := kind_of(name)) in counts:
                counts[kind] += count
        threads = k["threads"][0] * k["threads"][1] * k["threads"][2]
        row |= {"instructions": f["instructions"], **counts, "registers": f["registers"], "spills : fills": f"{f['spills']} : {f['fills']}",
                "threads": threads, "of at most": f["threads"], "bytes": f["threadgroup"],
                "occupancy": f"{occupancy(threads, f['threads'], f['threadgroup'])} %"}
        out.append(row)
    return sorted(out, key=lambda r: (r["kernel"], natural(r["constants"])))


def natural(text: str) -> list:
    return [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", text)]


def figures_of(row: dict) -> str:
    return f"{row['instructions']}, {row['registers']}, {row['spills : fills']}"


def compare(new: list[dict], old: list[dict]) -> list[dict]:
    """`new` with "before": instructions, registers, spills and fills of the same kernel in `old`; "=" where they are the same."""
    known = {(r["kernel"], r["constants"], str(r.get("threads"))): r for r in old if "error" not in r}
    for row in new:
        if "error" in row:
            continue
        before = known.get((row["kernel"], row["constants"], str(row["threads"])))
        row["before"] = "new" if before is None else "=" if figures_of(before) == figures_of(row) else figures_of(before)
    return new


def worst(table: list[dict]) -> list[dict]:
    """One line a kernel: of its variants the one with the most spills, then registers, then instructions. How many there are is with it."""
    best: dict[str, dict] = {}
    count: dict[str, int] = {}
    for row in table:
        if "error" in row:
            continue
        name = row["kernel"]
        count[name] = count.get(name, 0) + 1
        if name not in best or weight(row) > weight(best[name]):
            best[name] = row
    return [row | {"constants": "; ".join([f"{count[name]} variants"] * (count[name] > 1) + [row["constants"]] * (row["constants"] != ""))}
            for name, row in best.items()]


def weight(row: dict) -> tuple:
    return (int(row["spills : fills"].split()[0]), row["registers"], row["instructions"])


def to_markdown(table: list[dict]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    for row in table:
        if "error" in row:
            continue
        cells = [str(row.get(h, "")) for h in HEADER]
        if not row["spills : fills"].startswith("0 :"):
            at = HEADER.index("spills : fills")
            cells[at] = f"**{cells[at]}**"
        if row["threads"] > row["of at most"]:
            at = HEADER.index("of at most")
            cells[at] = f"**{cells[at]}**"
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def from_markdown(text: str) -> list[dict]:
    """The first such table of a text; empty where there is none."""
    out, inside = [], False
    for line in text.splitlines():
        cells = [c.strip().strip("*") for c in line.strip().strip("|").split("|")]
        if cells == HEADER:
            inside = True
        elif inside and line.startswith("|---"):
            continue
        elif inside and line.startswith("|"):
            row = dict(zip(HEADER, cells))
            out.append({h: int(v) if v.isdigit() else v for h, v in row.items()})
        elif inside:
            break
    return out


def faults(table: list[dict]) -> list[str]:
    """What must not be: spills, and dispatches of more threads than registers allow."""
    out = []
    for row in table:
        name = f"{row['kernel']} ({row['constants']})" if row["constants"] else row["kernel"]
        if "error" in row:
            out.append(f"{name}: {row['error']}")
            continue
        if not row["spills : fills"].startswith("0 :"):
            out.append(f"{name}: {row['spills : fills']} spills : fills")
        if row["threads"] > row["of at most"]:
            out.append(f"{name}: {row['threads']} threads, its registers allow {row['of at most']}")
    return out
