"""Ingot: an LLM inference engine.

`LLM` answers prompts; `Engine` runs one `Step` at a time for orchestrators that plan the work themselves.
"""

from ._ingot import (
    OUTPUT_FULL_LOGITS,
    OUTPUT_LOGPROBS,
    OUTPUT_SCORE,
    OUTPUT_TOKEN,
    OUTPUT_TOP_LOGITS,
    Engine,
    EngineLimits,
    Error,
    Inspection,
    SamplingParams,
    Step,
    StepError,
    StepKind,
    StepResult,
    __version__,
    devices,
    inspect,
    keep,
    settings,
)
from .default_model import default_model
from .hub import find_model
from .llm import LLM, Choice, Completion, Delta

__all__ = [
    "LLM",
    "OUTPUT_FULL_LOGITS",
    "OUTPUT_LOGPROBS",
    "OUTPUT_SCORE",
    "OUTPUT_TOKEN",
    "OUTPUT_TOP_LOGITS",
    "Choice",
    "Completion",
    "Delta",
    "Engine",
    "EngineLimits",
    "Error",
    "Inspection",
    "SamplingParams",
    "Step",
    "StepError",
    "StepKind",
    "StepResult",
    "__version__",
    "default_model",
    "devices",
    "find_model",
    "inspect",
    "keep",
    "settings",
]
