"""LLVM's text for AMD's GPUs, as clang makes it of a kernel, to text that a translator to SPIR-V takes.

clang infers address spaces for AMD's target and not for SPIR-V's, so a kernel goes that way: the numbers of the spaces change, private
memory is where allocations are by default, and bfloat, which SPIR-V does not have, becomes integers as Apple's GPUs before M3 need it.
"""
import re

#            flat: 4  global  local  constant  private
SPACES = {None: " addrspace(4)", "0": " addrspace(4)", "1": " addrspace(1)", "3": " addrspace(3)", "4": " addrspace(2)", "5": ""}
NUMBERS = {"0": "4", "1": "1", "3": "3", "4": "2", "5": "0"}
LAYOUT = "e-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-n8:16:32:64-G1"
# Says nothing to a translator, or nothing that it knows.
DROPPED = re.compile(r"call .*@llvm\.(assume|lifetime\.|experimental\.noalias|invariant\.)|^!|^source_filename|^\$|^@llvm\.|^@__hip_cuid")
KEPT_ATTRIBUTES = ("convergent", "nounwind", "memory(none)")


def spaces(line: str) -> str:
    line = line.replace(", addrspace(5)", "")
    line = re.sub(r"(@llvm\.[\w.]*)", lambda m: re.sub(r"\.p(\d)", lambda n: ".p" + NUMBERS[n[1]], m[1]), line)
    line = re.sub(r"(?<![\w%@.])ptr(?![\w.])(?: addrspace\((\d)\))?", lambda m: "\0ptr" + SPACES[m[1]], line)
    line = re.sub(r"(?<!\0ptr )addrspace\((\d)\) (global|constant|externally_initialized)",
                  lambda m: f"addrspace({NUMBERS[m[1]]}) {m[2]}", line)
    return line.replace("\0", "")


CONVERSION = re.compile(r"\s*(%[\w.-]+) = (fpext|fptrunc|fneg|uitofp|sitofp|fptoui|fptosi)(?: (?:fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nneg))*"
                        r" (<(\d+) x )?(\w+)>? ((?:<[^>]*>)|\S+?)(?: to (?:<\d+ x )?(\w+)>?)?$")


def bfloats(line: str, fresh) -> list[str]:
    """Numbers of 16 bits, and what is done to them by integers. `fresh()` gives numbers for names."""
    if "bfloat" not in line:
        return [line]
    line = re.sub(r"0xR([0-9A-F]{4})", lambda m: str(int(m[1], 16)), line)
    found = CONVERSION.match(line)
    if absolute := re.match(r"\s*(%[\w.-]+) = (?:tail )?call .*@llvm\.fabs\.bf16\(bfloat (?:noundef )?(\S+)\)", line):
        return [f"  {absolute[1]} = and i16 {absolute[2]}, 32767"]
    if line.startswith("declare"):
        return []
    if not found:
        if re.search(r"= (fadd|fsub|fmul|fdiv|frem|fcmp) .*bfloat|bf16\(", line):
            raise ValueError(f"arithmetic in bfloat: {line.strip()}")
        return [line.replace("bfloat", "i16")]
    name, kind, _, count, source, operand, target = found.groups()
    operand = operand.replace("bfloat", "i16")
    i16, i32, f32, i1 = (f"<{count} x {t}>" if count else t for t in ("i16", "i32", "float", "i1"))

    def number(n: int, kind: str = "i32") -> str:
        return "<" + ", ".join([f"{kind} {n}"] * int(count)) + ">" if count else str(n)

    out = []

    def step(text: str, result: str = "") -> str:
        result = result or f"%bf{fresh()}"
        out.append(f"  {result} = {text}")
        return result

    if kind == "fneg":
        step(f"xor {i16} {operand}, {number(-32768, 'i16')}", name)
    elif source == "bfloat":
        wide = step(f"zext {i16} {operand} to {i32}")
        bits = step(f"shl {i32} {wide}, {number(16)}")
        if kind == "fpext" and target == "float":
            step(f"bitcast {i32} {bits} to {f32}", name)
        else:
            to = f"<{count} x {target}>" if count else target
            step(f"{kind} {f32} {step(f'bitcast {i32} {bits} to {f32}')} to {to}", name)
    else:
        if kind != "fptrunc":
            operand = step(f"{kind} {f'<{count} x {source}>' if count else source} {operand} to {f32}")
        # To the nearest, ties to even; what is not a number stays so.
        bits = step(f"bitcast {f32} {operand} to {i32}")
        high = step(f"lshr {i32} {bits}, {number(16)}")
        odd = step(f"and {i32} {high}, {number(1)}")
        half = step(f"add {i32} {bits}, {number(32767)}")
        rounded = step(f"lshr {i32} {step(f'add {i32} {half}, {odd}')}, {number(16)}")
        quiet = step(f"or {i32} {high}, {number(64)}")
        bad = step(f"fcmp uno {f32} {operand}, {operand}")
        chosen = step(f"select {i1} {bad}, {i32} {quiet}, {i32} {rounded}")
        step(f"trunc {i32} {chosen} to {i16}", name)
    return out


PLACE = re.compile(r"getelementptr (?:inbounds |nuw |nusw )*\((\w+), (ptr(?: addrspace\(\d\))?) (@[\w.$]+), (i\d+ -?\d+)\)")


def flat_as_global(text: str) -> str:
    """Where flat pointers are to global or constant memory alone, one load made of two, they are pointers to global memory."""
    casts = re.findall(r"addrspacecast \(?ptr addrspace\((\d)\)", "\n".join(line for line in text.splitlines() if not line.startswith("@")))
    if not casts or not set(casts) <= {"1", "4"}:
        return text
    text = re.sub(r"%([\w.]+) = addrspacecast ptr addrspace\((\d)\) (%[\w.]+) to ptr\b",
                  r'%"\1.bits" = ptrtoint ptr addrspace(\2) \3 to i64\n  %\1 = inttoptr i64 %"\1.bits" to ptr addrspace(1)', text)
    return "\n".join(line if line.startswith("@") else re.sub(r"(?<![\w%@.])ptr(?![\w.])(?! addrspace)", "ptr addrspace(1)", line)
                     for line in text.splitlines()) + "\n"


def named_places(lines: list[str]) -> list[str]:
    """Places within variables, named at the start of the function: the translator gets those that stand within an instruction wrong."""
    out, entry, names = [], 0, {}
    for line in lines:
        if line == "entry:":
            entry, names = len(out) + 1, {}
        if line.startswith("  "):
            line = PLACE.sub(lambda m: names.setdefault(m[0], f"%place{len(names)}"), line)
        out.append(line)
        if line == "}":
            for place, name in names.items():
                kind, pointer, variable, offset = PLACE.match(place).groups()
                out.insert(entry, f"  {name} = getelementptr inbounds {kind}, {pointer} {variable}, {offset}")
            names = {}
    return out


def lower(text: str, threads: tuple[int, int, int]) -> str:
    counter, text = iter(range(1 << 30)), flat_as_global(text)
    out = [f'target datalayout = "{LAYOUT}"', 'target triple = "spir64-unknown-unknown"']
    for line in text.splitlines():
        if line.startswith("target ") or DROPPED.search(line):
            continue
        if line.startswith("attributes #"):
            head, body = line.split("{", 1)
            kept = [a for a in KEPT_ATTRIBUTES if re.search(rf"(?<![\w\"-]){re.escape(a)}", body)]
            out.append(f"{head}{{ {' '.join(kept)} }}")
            continue
        line = re.sub(r", !\w[\w.]* !\d+", "", line)
        line = re.sub(r' (syncscope\("[^"]*"\))', "", line)
        line = re.sub(r"\brange\([^)]*\) ?|\bnofpclass\([^)]*\) ?|\b(local_)?unnamed_addr ?|\bdso_local ?", "", line)
        if "amdgpu_kernel" in line:
            line = re.sub(r"define .*amdgpu_kernel", "define spir_kernel", line)
            line = re.sub(r"( #\d+)?( align \d+)? *\{$", r"\1 !reqd_work_group_size !0 {", line)
        # Mesa knows no pointers that are anything.
        line = re.sub(r"(?<=[ (])(ptr(?: addrspace\(\d\))?) (?:undef|poison)", r"\1 null", line)
        if re.search(r"= phi ptr", line):
            line = re.sub(r"\[ (undef|poison),", "[ null,", line)
        for lowered in bfloats(spaces(line), lambda: next(counter)):
            out.append(lowered)
    out = named_places(out)
    out += [f"!0 = !{{i32 {threads[0]}, i32 {threads[1]}, i32 {threads[2]}}}", "!opencl.ocl.version = !{!1}",
            "!1 = !{i32 2, i32 0}"]
    return "\n".join(out) + "\n"
