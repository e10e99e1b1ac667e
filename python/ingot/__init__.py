"""Ingot: an LLM inference engine.

`LLM` and `AsyncLLM` answer prompts; `Engine` runs one `Step` at a time for orchestrators that plan the work themselves.
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
    Follower,
    Group,
    GroupListener,
    Inspection,
    Step,
    StepError,
    StepKind,
    StepResult,
    StepSampling,
    __version__,
    devices,
    inspect,
    keep,
    settings,
)
from .answers import Choice, Completion, Delta, Logprob
from .async_llm import AsyncLLM
from .default_model import default_model
from .hub import find_model
from .llm import LLM
from .params import SamplingParams

__all__ = [
    "LLM",
    "OUTPUT_FULL_LOGITS",
    "OUTPUT_LOGPROBS",
    "OUTPUT_SCORE",
    "OUTPUT_TOKEN",
    "OUTPUT_TOP_LOGITS",
    "AsyncLLM",
    "Choice",
    "Completion",
    "Delta",
    "Engine",
    "EngineLimits",
    "Error",
    "Follower",
    "Group",
    "GroupListener",
    "Inspection",
    "Logprob",
    "SamplingParams",
    "Step",
    "StepError",
    "StepKind",
    "StepResult",
    "StepSampling",
    "__version__",
    "default_model",
    "devices",
    "find_model",
    "inspect",
    "keep",
    "settings",
]
