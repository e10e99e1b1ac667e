"""The `ingot` command: runs the binary of the package, which takes the terminal over."""

import os
import sys
from pathlib import Path


def find_binary() -> Path:
    binary = Path(__file__).parent / "bin" / "ingot"
    if not binary.is_file():  # an editable install keeps it in site-packages, the Python files in the checkout
        import ingot._ingot

        binary = Path(ingot._ingot.__file__).parent / "bin" / "ingot"
    return binary


def main() -> None:
    binary = find_binary()
    os.environ["INGOT_PYTHON"] = sys.executable  # fetches the default model where it is wanted and not there
    try:
        os.execv(binary, ["ingot", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"ingot: {binary} cannot be run: {error.strerror}; install the package again")


if __name__ == "__main__":
    main()
