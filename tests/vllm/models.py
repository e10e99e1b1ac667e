"""Models of the tests, vLLM on them, and what the native orchestrator answers."""

import contextlib
import functools
import gc
import subprocess
import sys
from pathlib import Path

import ingot

FIXTURES = Path(__file__).parents[1] / "fixtures" / "models"
# One a kind: vLLM looks at every architecture it has not seen in a process of its own, which takes a while.
TINY = [
    "llama-bf16-llama3", "llama-bf16-bias", "llama-bf16-linear", "llama-f16-untied-sharded", "llama-f16-yarn",
    "mistral-bf16-window", "qwen3-bf16",
]
BLOCKS = 120  # of 16 tokens: enough for every sequence of a test, unless it says otherwise


def command() -> str:
    """The `ingot` command of this environment."""
    return str(Path(sys.executable).parent / "ingot")


def export_default_model(folder: Path) -> str:
    model = ingot.default_model()
    assert model, "the default model is not there: make model"
    subprocess.run([command(), "export-hf", model, str(folder)], check=True)
    return str(folder)


def tiny_prompts() -> list[list[int]]:
    """Token ids for the tiny models (vocabularies from 151): six prompts of 103 to 173 tokens that share 100."""
    shared = [3 + (7 * i) % 140 for i in range(100)]
    return [shared + [(11 * i + j) % 140 + 3 for j in range(3 + 14 * i)] for i in range(6)]


@functools.lru_cache(maxsize=4)
def _native(model: str, device: str, kv_dtype: str) -> ingot.LLM:
    return ingot.LLM(model, device=device, kv_dtype=kv_dtype, max_seqs=8)


def native_tokens(
    model: str, prompts, max_tokens: int, device: str = "cpu", kv_dtype: str = "f16", **options
) -> list[list[int]]:
    """Greedy tokens of the native orchestrator, each prompt by itself."""
    options = {"temperature": 0, "ignore_eos": True, **options}
    llm = _native(model, device, kv_dtype)
    return [llm.generate(list(ids), max_tokens=max_tokens, **options).choices[0].token_ids for ids in prompts]


@contextlib.contextmanager
def vllm_llm(model: str, **options):
    """vLLM's LLM in this process, ended for good at the end."""
    from vllm import LLM

    defaults = dict(max_num_seqs=8, num_gpu_blocks_override=BLOCKS, disable_log_stats=False, enable_prefix_caching=True)
    llm = LLM(model=model, **{**defaults, **options})
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()


def generate(llm, prompts, max_tokens: int, **params):
    """vLLM's outputs for prompts of token ids; greedy unless told."""
    from vllm import SamplingParams

    sampling = SamplingParams(max_tokens=max_tokens, **{"temperature": 0, "ignore_eos": True, **params})
    return llm.generate([{"prompt_token_ids": list(ids)} for ids in prompts], sampling, use_tqdm=False)


def tokens_of(outputs) -> list[list[int]]:
    return [list(output.outputs[0].token_ids) for output in outputs]


def worker_of(llm):
    """The plugin's worker, where vLLM runs in this process."""
    return llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker


def metric(llm, name: str) -> float:
    return sum(m.value for m in llm.get_metrics() if m.name == name)
