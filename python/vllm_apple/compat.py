"""What differs between the versions of vLLM this plugin was tested with."""

import logging

import vllm

TESTED = ("0.12.0", "0.32.0")

# A child of vLLM's logger, so that its level and handlers apply.
logger = logging.getLogger("vllm.apple")


def warn_if_untested() -> None:
    version = vllm.__version__.split("+")[0]
    if version not in TESTED:
        logger.warning(
            "vllm_apple was tested with vLLM %s; this is %s: it may not work", " and ".join(TESTED), version
        )


def compilation_times(seconds: float):
    """What compile_or_warm_up_model() returns."""
    try:
        from vllm.v1.worker.worker_base import CompilationTimes
    except ImportError:
        return seconds
    return CompilationTimes(seconds, 0.0)
