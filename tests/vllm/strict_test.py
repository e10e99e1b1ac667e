"""VLLM_METAL_STRICT_NO_MPS=1: every way onto an accelerator that a test can try is refused."""

import json
import subprocess
import sys

import pytest

# The meta device stands in for an accelerator where there is none: a tensor that is not in host memory. `outside` was made
# before strict mode was on, as by someone who hands it over.
VIOLATIONS = {
    "a tensor is made on another device": "torch.ones(3, device='meta')",
    "an empty tensor is made on another device": "torch.empty(3, device=torch.device('meta'))",
    "a tensor is made like another": "torch.zeros_like(host, device='meta')",
    "a tensor is moved": "host.to('meta')",
    "a tensor is moved by its device": "host.to(device=torch.device('meta'), dtype=torch.float16)",
    "a module is moved": "torch.nn.Linear(2, 2).to('meta')",
    "a tensor is copied over": "host.copy_(outside)",
    "a tensor from outside is computed with": "outside + 1",
    "a tensor from outside is read": "outside.sum().item()",
    "a tensor from outside is brought home": "outside.cpu()",
    "mps is asked for": "torch.ones(2, device='mps')",
    "torch.mps.synchronize": "torch.mps.synchronize()",
    "torch.mps.empty_cache": "torch.mps.empty_cache()",
    "torch.mps.current_allocated_memory": "torch.mps.current_allocated_memory()",
    "torch.mps.Event": "torch.mps.Event()",
    "torch.mps in another thread": "pool.submit(torch.mps.synchronize).result()",
    "a device is set on the platform": "ApplePlatform.set_device('mps')",
    "a default device": "(torch.set_default_device('meta'), torch.ones(2))",
}

# Runs in a process of its own: strict mode stays on in the thread that turned it on. So it is off at first, then on.
SCRIPT = """
import concurrent.futures, json, os, sys
import torch
outside = torch.ones(4, device="meta")
host = torch.ones(4)
pool = concurrent.futures.ThreadPoolExecutor(1)
from vllm_apple import strict
from vllm_apple.platform import ApplePlatform

def run(value, cases):
    os.environ["VLLM_METAL_STRICT_NO_MPS"] = value
    on, seen = strict.install(), {}
    for name, code in cases.items():
        try:
            eval(code)
            seen[name] = "allowed"
        except strict.StrictError as error:
            seen[name] = f"refused: {error}"
        except Exception as error:
            seen[name] = f"{type(error).__name__}: {error}"
    return on, seen

off, on = json.load(sys.stdin)
print(json.dumps([run("0", off), run("1", on), strict.install()]))
"""
WITHOUT = [
    "a tensor is made on another device", "a tensor is moved", "a tensor from outside is computed with",
    "a device is set on the platform",
]


@pytest.fixture(scope="module")
def both():
    cases = VIOLATIONS | {"host memory": "(host + 1).sum().item()", "a seed": "torch.manual_seed(1)", "to mps": "host.to('mps')"}
    text = json.dumps([{name: VIOLATIONS[name] for name in WITHOUT}, cases])
    done = subprocess.run([sys.executable, "-c", SCRIPT], input=text, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def seen(both):
    assert both[1][0] and both[2], "on, and on again"
    return both[1][1]


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_is_refused(seen, name):
    assert seen[name].startswith("refused: VLLM_METAL_STRICT_NO_MPS=1"), seen[name]


def test_a_tensor_is_not_sent_to_mps(seen):
    # A torch without mps says so itself, before strict mode could.
    assert seen["to mps"].startswith("refused: ") or "not linked with support for mps" in seen["to mps"]


def test_host_memory_is_allowed(seen):
    assert seen["host memory"] == seen["a seed"] == "allowed"


def test_nothing_is_refused_without_the_variable(both):
    on, seen = both[0]
    assert not on and list(seen) == WITHOUT and set(seen.values()) == {"allowed"}, seen
