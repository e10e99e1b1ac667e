"""vLLM's greedy tokens are the native orchestrator's, however vLLM schedules."""

from importlib.metadata import version

import pytest
from models import FIXTURES, TINY, generate, metric, native_tokens, tiny_prompts, tokens_of, vllm_llm

NEW = 24
SCHEDULING = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def check_every_way(model, prompts, new, is_async, device="cpu", **options):
    """Alone, batched with chunked prefill, from the prefix cache: the same tokens."""
    expected = native_tokens(model, prompts, new, device)
    with vllm_llm(model, async_scheduling=is_async, max_num_batched_tokens=64, **options) as llm:
        assert llm.llm_engine.vllm_config.scheduler_config.async_scheduling == is_async
        assert tokens_of(generate(llm, prompts[:1], new)) == expected[:1]
        batched = generate(llm, prompts, new)
        assert tokens_of(batched) == expected
        # 64 tokens a step: longer prompts came in chunks; and what they share was computed once.
        assert max(len(ids) for ids in prompts) > 64
        assert all(output.num_cached_tokens > 0 for output in batched[1:])
        again = generate(llm, prompts[::-1], new)
        assert tokens_of(again) == expected[::-1]
        assert all(output.num_cached_tokens >= len(output.prompt_token_ids) - 16 for output in again)


def check_preemption(model, prompts, new, is_async, blocks, device="cpu", **options):
    expected = native_tokens(model, prompts, new, device)
    with vllm_llm(model, async_scheduling=is_async, num_gpu_blocks_override=blocks, **options) as llm:
        assert tokens_of(generate(llm, prompts, new)) == expected
        assert metric(llm, "vllm:num_preemptions") > 0


@SCHEDULING
@pytest.mark.parametrize("name", TINY)
def test_tiny_models(name, is_async):
    check_every_way(str(FIXTURES / name), tiny_prompts(), NEW, is_async, skip_tokenizer_init=True)


@SCHEDULING
def test_tiny_model_under_preemption(is_async):
    prompts = [[3 + i] * 40 + list(range(5, 65)) for i in range(6)]  # nothing shared: 9 blocks each at the end
    check_preemption(str(FIXTURES / TINY[0]), prompts, 40, is_async, blocks=30, skip_tokenizer_init=True)


@pytest.mark.parametrize("block_size", [8, 32])
def test_other_block_sizes(block_size):
    model, prompts = str(FIXTURES / TINY[0]), tiny_prompts()
    with vllm_llm(model, block_size=block_size, skip_tokenizer_init=True, max_num_batched_tokens=64) as llm:
        assert tokens_of(generate(llm, prompts, NEW)) == native_tokens(model, prompts, NEW)


SHARED = "Water boils at 100 degrees Celsius and freezes at zero. " * 6
TAILS = ["That is why", "The capital of France is", "Once upon a time,", "def fibonacci(n):\n    "]


@SCHEDULING
def test_default_model(default_folder, is_async):
    prompts = _encode(default_folder, [SHARED + tail for tail in TAILS])
    check_every_way(default_folder, prompts, 12, is_async, max_model_len=1024)


@SCHEDULING
def test_default_model_under_preemption(default_folder, is_async):
    prompts = _encode(default_folder, [f"{i}. {SHARED}" for i in range(4)])
    check_preemption(default_folder, prompts, 24, is_async, blocks=26, max_model_len=256)


def _encode(folder, texts):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [tokenizer(text)["input_ids"] for text in texts]


# Which version plans is nothing to the device, and its kernels, compiled for each model, are most of the time: so one version, the
# newest, has them all.
ON_METAL = TINY if version("vllm").startswith("0.32.") else TINY[:1]


@SCHEDULING
@pytest.mark.parametrize("name", ON_METAL)
def test_tiny_models_on_the_metal_device(name, is_async, monkeypatch):
    """The software device where there is no Apple GPU: slow, so little is asked of it."""
    monkeypatch.setenv("INGOT_DEVICE", "metal")
    prompts = [ids[:70] + ids[-3:] for ids in tiny_prompts()[:3]]
    check_every_way(str(FIXTURES / name), prompts, 4, is_async, "metal", skip_tokenizer_init=True)
