"""The kinds of faults: each finds places in a line of code and says what the line becomes."""

import dataclasses
import re

# A line that is taken away leaves a statement behind, as it may be all that an `if` in front of it has.
CPP_NOTHING, PYTHON_NOTHING = "(void)0;", "pass"
LVALUE = r"\*?[A-Za-z_](?:[\w.]|->|::|\[[^\[\]]*\])*"


@dataclasses.dataclass(frozen=True)
class Edit:
    start: int
    end: int
    text: str


class View:
    """One line and its surroundings, as the kinds see it."""

    def __init__(self, source, index):
        self.source, self.index = source, index
        self.code, self.real = source.code[index], source.lines[index]
        self.python = source.path.endswith(".py")
        self.kernel = "/kernels/" in source.path and "metal" in source.path

    def near(self, offset):
        index = self.index + offset
        return self.source.code[index] if 0 <= index < len(self.source.code) else ""

    def whole(self):
        """Whether this line is a statement of its own: neither begun before it nor going on behind it."""
        before = next((l.rstrip() for l in reversed(self.source.code[: self.index]) if l.strip()), "")
        if self.python:
            return before.count("(") <= before.count(")") and self.code.count("(") == self.code.count(")")
        begun = before == "" or before[-1] in ";{}" or re.search(r"^\s*(if|else|for|while)\b.*\)?$|^\s*\w+:$", before)
        return bool(begun) and self.code.count("(") == self.code.count(")") and self.code.rstrip().endswith(";")


def _drop(view, pattern):
    """The whole statement goes."""
    if not re.match(r"\s+" + pattern + r"\s*$", view.code) or not view.whole():
        return
    start = len(view.code) - len(view.code.lstrip())
    yield Edit(start, len(view.code.rstrip()), PYTHON_NOTHING if view.python else CPP_NOTHING)


def _replace(view, pattern, text):
    """`text` for every match of `pattern`; \\1 in it is the first group as it stands in the file."""
    for m in re.finditer(pattern, view.code):
        put = text(m) if callable(text) else re.sub(r"\\(\d)", lambda n: view.real[slice(*m.span(int(n.group(1))))], text)
        yield Edit(m.start(), m.end(), put)


def barrier(view):
    if "mem_none" not in view.code:  # orders no memory: a hint for when loads are issued
        yield from _drop(view, r"(?:threadgroup_barrier|simdgroup_barrier)\(.*\);")
    yield from _drop(view, r"(?:\w+(?:->|\.))?(?:memoryBarrier|updateFence|waitForFence)\(.*\);")
    yield from _drop(view, r"(?:place_barrier\(\)|on_threadgroup_barrier\(\)|worker\.sync\(\)|\w+\.sync\(\));")


def off_by_one(view):
    if re.match(r"\s*(?:template|class|struct|#)|.*\boperator\b|.*<<", view.code):
        return
    loop = r"(?<=[\w)\]]) < (?=[^;<>]*;)" if re.match(r"\s*for \(", view.code) and not view.python else None
    if loop:
        yield from _replace(view, loop, " <= ")
    yield from _replace(view, r"(?<=[\w)\]]) \+ 1\b(?![.\w])(?! *\))(?! *[*/])", "")
    if not re.search(r"\+ [\w.]+ - 1\) /", view.code):  # rounds up: one more group or byte does no harm
        yield from _replace(view, r"(?<=[\w)\]]) - 1\b(?![.\w])(?! *[*/])", "")
    if re.search(r"\b(?:if|while|return)\b|&&|\|\|", view.code):
        yield from _replace(view, r"(?<=[\w)\]]) <= ", " < ")
        yield from _replace(view, r"(?<=[\w)\]]) >= (?!0\b)", " > ")
        # `> 0` asks whether there is any; where there is none, what follows has nothing to do.
        yield from _replace(view, r"(?<=[\w)\]]) > (?=[\w(])(?!0\b)", " >= ")


def scale(view):
    yield from _replace(view, r" [*/] (?=(?:\w*(?:[sS]cale|factor|norm|inverse)\w*|1e-?\d+|1000\b|1024\b)(?:[;),]|\.\w+;))[\w.-]+", "")
    yield from _replace(view, r"(?<![\w.])1\.0?f? / (?=[\w(])", "2.0f / ")
    yield from _replace(view, r"\b(?:std::)?sqrt\((\w[\w.]*)\)", r"(\1)")
    yield from _replace(view, r"<< 20\b", "<< 10")
    yield from _replace(view, r"<< 10\b", "<< 20")
    yield from _replace(view, r"(?<= / )(16|32|127|255)\.0?f(?![\w])", lambda m: f"{int(m.group(1)) + 1}.0f")
    yield from _replace(view, r"(?<![\w.>])block_size_? \* ", "")
    yield from _replace(view, r" \* (?:\w+(?:->|\.))?(?:block_size|head_size|hidden|kv_heads|heads|stride|row_bytes|cols)_?(?=[;),\]])", "")


def missed_free(view):
    yield from _drop(view, r"(?:(?:[\w.>-]|::)*(?:->|\.|::))?(?:release|release_all|free|munmap|close|remove|unref|"
                           r"deallocate|\w*_cleanup|\w*Free\w*|forget|forget_all|leave|unlock|unlink|give_back)\([^;]*\);")
    yield from _drop(view, r"(?:\w+(?:\.|->))*\w+_(?:\[\w+\])?(?:\.|->)(?:reset|erase)\([^;]*\);")
    if view.python:
        yield from _drop(view, r"(?:\w+\.)*(?:free|remove|discard|close|pop|release)\([^=]*\)|\s*del .*")


def lost_wakeup(view):
    yield from _drop(view, rf"(?:{LVALUE}(?:\.|->))?(?:notify_one|notify_all|notify_|wake\w*|signal)\(\);")
    yield from _replace(view, r"\) (\w+\.notify_(?:all|one)\(\));", ") (void)0;")


# How an error is said here: by throwing, or by calling what throws.
RAISES = r"\b(?:throw\b|throw_error|fail\w*\(|refuse\w*\(|bad_\w+\(|reject\w*\(|raise\b|die\(|overflow\(|Violation|faults?\.push)"


def skipped_check(view):
    if view.python:
        if re.match(r"\s*(?:el)?if .*:\s*$", view.code) and re.search(r"\braise\b", view.near(1)):
            yield from _replace(view, r"(?<=if )(.*)(?=:\s*$)", r"False and (\1)")
        return
    m = re.match(r"\s*(?:\} else |else )?if \((.*)\)( [^)]*;| \{| fail.*| throw.*| refuse.*|)\s*$", view.code)
    if m and m.group(1).count("(") == m.group(1).count(")") and ";" not in m.group(1):
        told = view.code[m.end(1):] + " " + (view.near(1) if not view.code.rstrip().endswith(";") else "")
        if re.search(RAISES, told) or re.search(r"\breturn (?:false|nullptr|std::nullopt|-1|\{\});", told):
            if not re.match(r"(?:const )?\w+[\w:<>*& ]* = ", m.group(1)):  # declares what is tested
                yield Edit(m.start(1), m.end(1), f"false && ({view.real[slice(*m.span(1))]})")


def comparison(view):
    if re.match(r"\s*(?:template|class|struct|#|for )|.*\boperator\b|.*<<|.*\bassert\b", view.code):
        return
    conditional = re.search(r"\b(?:if|while|return|elif|and|or|not)\b|&&|\|\||\?|^\s*\[", view.code)
    if conditional:
        yield from _replace(view, r"(?<=[\w)\]]) < (?=[\w(*-])(?![^;]*> *[(&{])", " > ")
        yield from _replace(view, r"(?<=[\w)\]]) > (?=[\w(*-])", " < ")
        yield from _replace(view, r" == ", " != ")
        yield from _replace(view, r" != ", " == ")
        if len(re.findall(r"&&|\|\|", view.code)) == 1 and view.code.count("(") == view.code.count(")"):
            yield from _replace(view, r" && (?=[\w!(])", " || ")  # among others of its kind it would need parentheses
            yield from _replace(view, r" \|\| (?=[\w!(])", " && ")
    if view.python and conditional:
        yield from _replace(view, r" is not None\b", " is None")
        yield from _replace(view, r"(?<= )not (?=\w)", "")
        yield from _replace(view, r"(?<=\w) and (?=\w)", " or ")
    yield from _replace(view, r"(?<![:.\w]{2})\b(?:std::)?min(?=[(<])(?!\(\))", lambda m: m.group().replace("min", "max"))
    yield from _replace(view, r"(?<![:.\w]{2})\b(?:std::)?max(?=[(<])(?!\(\))", lambda m: m.group().replace("max", "min"))
    yield from _replace(view, r"(?<=if \()!(?=\w)", "")


def constant(view):
    number = r"(?<![\w.'])(0x[0-9a-fA-F]+|[1-9]\d*)(?![\w.'])"
    changed = lambda m: hex(int(m.group(1), 16) ^ 1) if m.group(1).startswith("0x") else str(int(m.group(1)) + 1)
    if re.match(r"\s*(?:static |inline )?(?:constexpr|constant) [^()]*\bk?\w+ = ", view.code):
        yield from _replace(view, r"(?<== )" + number + r"(?=[;u])", changed)
    if re.search(r"\b(?:case|return)\b", view.code):
        yield from _replace(view, r"(?<=return )" + number + r"(?=;)", changed)
        yield from _replace(view, r"(?<=case )" + number + r"(?=:)", changed)
    if re.match(r"\s+\{\".*\", .*\},?\s*$", view.code):
        yield from _replace(view, r"(?<=, )" + number + r"(?=[,}])", changed)
    yield from _replace(view, r"(?<= (?:&|%|\^) )" + number + r"(?=[;),\] ])", changed)
    yield from _replace(view, r"(?<= >> )" + number + r"(?=[;),\] ])", changed)
    yield from _replace(view, r"(?<= (?:==|!=) )0x[0-9a-fA-F]+", lambda m: hex(int(m.group(), 16) ^ 1))
    yield from _replace(view, r" \+ (?:7|15|31|63|255)(?=\) / )", "")  # rounds down instead of up
    # One less: where it is a size, one more would do no harm.
    yield from _replace(view, r"(?<=[\w\])] \+ )([2-9]|\d\d+)(?=[;),\]])(?!\) /)", lambda m: str(int(m.group(1)) - 1))


COMMUTE = {"min", "max", "swap", "gcd", "fmin", "fmax", "pair", "if", "while", "for", "switch", "return", "tie", "equal", "zip"}
LITERALS = {"true", "false", "nullptr", "this", "None", "self", "True", "False"}


def _type_of(view, name):
    """What a name is declared as, in the nearest line above that declares it; None: not known."""
    declared = re.compile(
        r"(?:^|[(,;]|\bconst )\s*((?:[a-z_][\w:]*)(?:<[\w:, <>]*>)?)(?: const)?[ *&]+"
        rf"(?:\w+(?: = [^,;()]*)?, )*{re.escape(name)}\b(?=[,;)=({{\[]| =)")
    for code in reversed(view.source.code[: view.index + 1]):
        found = declared.search(code)
        if found and found.group(1) not in ("return", "auto", "else", "case", "throw", "const"):
            return found.group(1)
    return None


def swapped(view):
    one = r"((?:\w+(?:\.|->))*[a-z_]\w*)"
    for m in re.finditer(rf"\b([a-z]\w*)\((?:([^()]*), )?{one}, {one}\)", view.code):
        a, b = m.group(3), m.group(4)
        if m.group(1) in COMMUTE | {"format"} or a == b or {a, b} & LITERALS or re.search(r"\bdef |\bauto\b.*\[", view.code[: m.start()]):
            continue
        types = _type_of(view, a), _type_of(view, b)
        if view.python or (types[0] == types[1] and types[0]):  # others would hardly compile
            yield Edit(m.start(3), m.end(4), f"{b}, {a}")
    if not view.python:
        yield from _replace(view, r"(?<== )(\w+) - (\w+)(?=;)", r"\2 - \1")


def missed_lock(view):
    # C++ only: there ThreadSanitizer looks. A lock of Python's guards what its interpreter hardly ever interrupts.
    yield from _drop(view, r"(?:const )?std::(?:lock_guard|scoped_lock) \w+\([^;]*\);")


OPTION_FILES = {
    "include/ingot/engine.h", "include/ingot/llm.h", "include/ingot/step.h", "src/model/config.h", "src/core/settings.h",
    "src/text/tokenizer_data.h", "src/formats/json.h", "src/server/http.h", "src/server/http_server.h", "src/server/openai/api.h",
    "src/cli/serve_options.h", "src/cli/common.h", "src/cli/sampling_options.h"}


def default(view):
    member = re.match(r"\s+(?:static |inline |mutable )*(?:bool|u?int\w*|size_t|float|double|std::\w+) \w+ = ", view.code)
    # The state an object begins with, unless it is set before it is read, and options. The members of other structs are
    # filled in by whoever makes one.
    begun = member and view.code[: member.end()].endswith("_ = ")
    if begun:
        name = view.code[: member.end() - 3].split()[-1]
        begun = not re.search(rf"\b{name}(?:\(| = (?!(?:true|false|\d+);))", "\n".join(view.source.pair))
    if member and not view.kernel and (begun or view.source.path in OPTION_FILES):
        yield from _replace(view, r"(?<= = )true(?=;)", "false")
        yield from _replace(view, r"(?<= = )false(?=;)", "true")
        yield from _replace(view, r"(?<= = )(\d+) << (\d+)(?=;)", lambda m: f"{m.group(1)} << {int(m.group(2)) // 2}")
        yield from _replace(view, r"(?<= = )([1-9]\d*)(?=;)", lambda m: str(int(m.group(1)) * 2))
        yield from _replace(view, r"(?<= = )([1-9]\d*\.\d+f?)(?=;)", r"0.5f * \1")
    yield from _replace(view, r"(?<=value_or\()(\d+)(?=\))", lambda m: str(int(m.group(1)) + 1))
    yield from _replace(view, r"(?<=value_or\()true(?=\))", "false")
    yield from _replace(view, r"(?<=value_or\()false(?=\))", "true")
    yield from _replace(view, r"(?<=, )true(?=\);)", "false")
    yield from _replace(view, r"(?<=, )false(?=\);)", "true")
    if view.python:
        yield from _replace(view, r"(?<=[=] )True\b|(?<=[=,(])True(?=[,)])", "False")
        yield from _replace(view, r"(?<=[=] )False\b|(?<=[=,(])False(?=[,)])", "True")
        yield from _replace(view, r"(?<=, )(\d+)(?=\)\s*$)", lambda m: str(int(m.group(1)) + 1))


def state(view):
    if view.python:
        yield from _drop(view, r"(?:self\.)[\w.]+(?:\[[^\]]*\])* (?:=|\+=|-=|\|=) .+|\w+\.(?:append|add|extend|update)\(.*\)")
        return
    yield from _drop(view, rf"{LVALUE} (?:=|\+=|-=|\*=|\|=|&=) [^{{]+;")
    yield from _drop(view, rf"(?:\+\+|--){LVALUE};")
    yield from _drop(view, rf"{LVALUE}(?:\.|->)(?:push_back|emplace_back|insert|append|emplace|clear|pop_back|push|pop|erase)\([^{{]*\);")


def index(view):
    declares = r"\s*(?:(?:const|static|threadgroup|thread|mutable) )*[\w:<>]+ \w+(?:\[\w+\])+(?: = .*|, .*)?;"
    if re.match(r"\s*(?:template|using|#)|.*\boperator\b|" + declares, view.code) and "return" not in view.code:
        return
    yield from _replace(view, r"(?<=[\w)\]])\[((?!k[A-Z])[a-z]\w*)\](?!\()(?=[\s.;),*+/-])", "[0]")
    yield from _replace(view, r"(?<=[\w)\]])\[(\w+) \+ 1\]", r"[\1]")
    yield from _replace(view, r"(?<=[\w)\]])\[0\]", "[1]")
    yield from _replace(view, r"\.front\(\)", ".back()")
    yield from _replace(view, r"\.back\(\)", ".front()")
    if view.python:
        yield from _replace(view, r"(?<=\w)\[-1\]", "[0]")


KINDS = {
    "dropped barrier": barrier,
    "off by one": off_by_one,
    "wrong scale": scale,
    "missed free": missed_free,
    "lost wakeup": lost_wakeup,
    "skipped check": skipped_check,
    "comparison turned round": comparison,
    "wrong constant": constant,
    "swapped arguments": swapped,
    "missed lock": missed_lock,
    "wrong default": default,
    "dropped state update": state,
    "wrong index": index,
}
