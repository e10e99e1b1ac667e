"""Which kernels the report is of: a sum of everything that the text of a kernel and its dispatches say, a line a kernel in reported.txt."""
import hashlib
import pathlib
import re

FILE = pathlib.Path(__file__).with_name("reported.txt")
RENEW = "run `make agx-report AGX=--write`"


def text_of(source: str) -> str:
    """The source without what the compiler does not see: where lines stood, and how words were set."""
    return " ".join(word for line in source.split("\n") if not re.match(r"# \d", line) for word in line.split())


def sums(kernels: list[dict]) -> dict[str, str]:
    """Of each kernel, over all its variants: constants, threads, threadgroup memory, and the text that it reaches."""
    parts: dict[str, list[str]] = {}
    for k in kernels:
        constants = " ".join(f"{name}={value}" for name, value in sorted(k["constants"].items()))
        parts.setdefault(k["kernel"], []).append(f"{constants} {k['threads']} {k['bytes']} {text_of(k['source'])}")
    return {name: hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16] for name, texts in sorted(parts.items())}


def write(kernels: list[dict]) -> None:
    FILE.write_text("".join(f"{digest} {name}\n" for name, digest in sums(kernels).items()))


def read() -> dict[str, str]:
    return {name: digest for digest, name in (line.split() for line in FILE.read_text().splitlines())}


def differences(kernels: list[dict], reported: dict[str, str]) -> list[str]:
    """What the report does not say of the kernels there are, or says of others."""
    now = sums(kernels)
    return ([f"{name} is not what it was" for name in now if name in reported and now[name] != reported[name]] +
            [f"{name} is not in the report" for name in now if name not in reported] +
            [f"{name} is in the report alone" for name in reported if name not in now])
