"""The `ingot` command: runs the binary of the package, which takes the terminal over."""

import os
import sys
from pathlib import Path

from .default_model import default_model


def find_binary() -> Path:
    binary = Path(__file__).parent / "bin" / "ingot"
    if not binary.is_file():  # an editable install keeps it in site-packages, the Python files in the checkout
        import ingot._ingot

        binary = Path(ingot._ingot.__file__).parent / "bin" / "ingot"
    return binary


def main() -> None:
    binary = find_binary()
    if model := default_model():
        os.environ["INGOT_DEFAULT_MODEL"] = model
    try:
        os.execv(binary, ["ingot", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ingot: {binary} cannot be run: {error.strerror}; install the package again")


if __name__ == "__main__":
    main()
