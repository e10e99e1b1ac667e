"""Source files as lines of which only the code is visible: what is in comments and string literals is blanked out.

Positions stay what they were, so that what is found in the blanked line can be changed in the real one.
"""

import dataclasses
import io
import re
import tokenize

_CPP = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|' r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL)


@dataclasses.dataclass
class Source:
    path: str
    lines: list  # as they are, without their line ends
    code: list  # the same with comments and the content of literals blanked; "" where a line is never compiled here
    where: list  # the name of the function around each line, or ""
    pair: list  # the lines of both files where there are a header and its source file


def _blank(text):
    """Spaces instead of everything, but quotes stay, so that a literal is still seen to be one."""
    quoted = len(text) > 1 and text[0] in "\"'" and text[-1] == text[0]
    inner = re.sub(r"[^\n]", " ", text)
    return text[0] + inner[1:-1] + text[-1] if quoted else inner


def _blank_cpp(text):
    return _CPP.sub(lambda m: _blank(m.group()), text)


def _blank_python(text):
    lines = text.split("\n")
    skipped = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            continue
        (first, start), (last, end) = token.start, token.end
        for row in range(first, last + 1):
            line = lines[row - 1]
            a, b = start if row == first else 0, end if row == last else len(line)
            quoted = token.type == tokenize.STRING and first == last and b - a > 1
            lines[row - 1] = line[:a] + ('"' + " " * (b - a - 2) + '"' if quoted else " " * (b - a)) + line[b:]
    return "\n".join(lines)


# Parts that no build on the machines of the suite compiles, by the condition that guards them.
_ELSEWHERE = re.compile(r"__APPLE__|__aarch64__|__ARM|_WIN32|SM_CUDA|__CUDA|SOFTMETAL_ASAN|SOFTMETAL_TSAN|"
                        r"SM_SANITIZED|SM_LINT|SOFTMETAL_WIDE|SOFTMETAL_COPIES|SOFTMETAL_EARLY|INGOT_METALLIB|INGOT_HAS_NEON|DOTPROD")


def _hide_other_platforms(code):
    """Blanks the branches of #if that are for other systems, and every directive."""
    hidden, stack = [], []  # the stack has (this branch is for elsewhere) of every #if around
    for line in code:
        word = re.match(r"\s*#\s*(\w+)(.*)", line)
        if word:
            name, condition = word.groups()
            away = bool(_ELSEWHERE.search(condition)) and "!" not in condition and name != "ifndef"
            if name in ("if", "ifdef", "ifndef"):
                stack.append(away)
            elif name == "elif" and stack:
                stack[-1] = away
            elif name == "else" and stack:
                stack[-1] = False
            elif name == "endif" and stack:
                stack.pop()
        hidden.append("" if word or any(stack) else line)
    return hidden


_FUNCTION = re.compile(r"^(?:  )?(?![\s}#])(?!(?:if|for|while|switch|return|else|namespace|using)\b)[^;=]*?([\w~]+)\(")


def _functions(code, python):
    """The nearest line above that looks like the head of a function; good enough to name and to exclude one."""
    names, name = [], ""
    for line in code:
        found = re.match(r"\s*def (\w+)", line) if python else _FUNCTION.match(line)
        if found:
            name = found.group(1)
        elif line.startswith("}"):
            names.append(name)
            name = ""
            continue
        names.append(name)
    return names


def read(root, path):
    text = (root / path).read_text()
    python = path.endswith(".py")
    code = (_blank_python(text) if python else _blank_cpp(text)).split("\n")
    if not python:
        code = _hide_other_platforms(code)
    other = root / re.sub(r"\.(h|cc)$", lambda m: ".cc" if m.group(1) == "h" else ".h", path)
    pair = code + (_blank_cpp(other.read_text()).split("\n") if not python and other.is_file() and other != root / path else [])
    return Source(path, text.split("\n"), code, _functions(code, python), pair)
