"""Models by name: the Hugging Face cache, then the hub. The work is the command's (`ingot pull`)."""

import os
import subprocess
import sys

from . import _ingot
from .command import find_binary


def find_model(model: str) -> str:
    """The path of a model: one that exists as it is; else OWNER/NAME[@REVISION][:VARIANT] in the Hugging Face cache,
    fetched from the hub where it is not there. Progress goes to stderr."""
    if os.path.lexists(model) or not _ingot.is_model_name(model):
        return model
    with subprocess.Popen(
        [find_binary(), "pull", "--if-missing", model], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout and process.stderr
        said = ""
        for line in process.stderr:
            if said:
                sys.stderr.write(said)  # the last line, an error, becomes the exception
            said = line
        path = process.stdout.read().strip()
    if process.returncode != 0:
        raise _ingot.Error(said.strip().removeprefix("ingot: ") or f"{model}: could not be fetched")
    sys.stderr.write(said)
    return path
