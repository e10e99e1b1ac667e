"""VLLM_METAL_STRICT_NO_MPS=1: a torch tensor anywhere but in host memory, or a call of torch.mps, is an error."""

import ingot
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class StrictError(RuntimeError):
    """A torch operation that would have used an accelerator."""


def check_device(device) -> None:
    """Raises when strict mode is on and `device` is not the CPU."""
    if ingot.settings()["strict_no_mps"] and torch.device(device).type != "cpu":
        raise StrictError(f"VLLM_METAL_STRICT_NO_MPS=1: torch device {device}; only cpu is allowed")


def _check(name: str, values) -> None:
    for value in values:
        device = value.device if isinstance(value, torch.Tensor) else value if isinstance(value, torch.device) else None
        if device is not None and device.type != "cpu":
            raise StrictError(f"VLLM_METAL_STRICT_NO_MPS=1: {name} with a {device} tensor; only cpu is allowed")


class StrictMode(TorchDispatchMode):
    """Looks at every torch operation of the thread that entered it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        _check(str(func), tree_leaves((args, kwargs)))
        result = func(*args, **kwargs)
        _check(str(func), tree_leaves(result))
        return result


def _refuse(name: str):
    def refused(*args, **kwargs):
        raise StrictError(f"VLLM_METAL_STRICT_NO_MPS=1: torch.mps.{name}() was called")

    return refused


_mode = None


def install() -> bool:
    """Turns strict mode on for this thread when the variable says so; torch.mps is refused in every thread."""
    global _mode
    if not ingot.settings()["strict_no_mps"] or _mode is not None:
        return _mode is not None
    for name in ("synchronize", "empty_cache", "set_per_process_memory_fraction", "current_allocated_memory",
                 "driver_allocated_memory", "compile_shader", "Event"):
        if hasattr(torch.mps, name):
            setattr(torch.mps, name, _refuse(name))
    _mode = StrictMode()
    _mode.__enter__()
    return True
