"""The files of the race against llama.cpp, made once and kept in the cache."""

import os
import pathlib
import shutil
import sys

import racing as base
import random_gguf

FORMATS = ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "BF16"]

# llama-quantize's name for a file of a format, where it is another.
QUANTIZE_AS = {"Q4_K": "Q4_K_S"}

# Rows of 576 do not divide into blocks of 256: llama-quantize takes blocks of 32 there.
SMOLLM2_NOTES = {"Q4_K": "rows of 576 in Q5_0, down's rows of 1,536 in Q4_K", "Q6_K": "rows of 576 in Q8_0, down's rows of 1,536 in Q6_K"}


def require_room(folder, size):
    free = shutil.disk_usage(folder).free
    if free < size + (2 << 30):
        raise base.RaceError(f"{size / 1e9:.0f} GB for a file in {folder}, {free / 1e9:.0f} GB are free there; choose another cache"
                             " (INGOT_CACHE), or fewer files (--only)")


def smollm2(name, default_model, quantize, env):
    """SmolLM2-135M in a format, by llama-quantize from the default model, which is Q4_1."""
    if name == "Q4_1":
        return default_model
    target = base.cache_dir() / "models" / f"SmolLM2-135M-Instruct.{name}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.{os.getpid()}")
        base.call([quantize, "--allow-requantize", default_model, part, QUANTIZE_AS.get(name, name)], env=env)
        part.rename(target)
    return target


def shape(model, name):
    """Random weights in the shapes of a model."""
    target = base.cache_dir() / "models" / "random" / f"{model}.{name}.gguf"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        size = random_gguf.file_bytes(model, name)
        require_room(target.parent, size)
        print(f"==> Writing {target.name}, random weights, {size / 1e9:.1f} GB (once)", file=sys.stderr, flush=True)
        random_gguf.write(target, model, name)
    return pathlib.Path(target)
