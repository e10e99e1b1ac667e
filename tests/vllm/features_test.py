"""What vLLM's settings mean here: what is passed on, what is clamped, what is declined and with which words."""

import logging
from typing import get_args

import ingot
import numpy as np
import pytest
from models import FIXTURES, generate, native_tokens, tiny_prompts, tokens_of, vllm_llm, worker_of

MODEL = str(FIXTURES / "llama-bf16-llama3")
NEW = 12


def tiny(**options):
    return vllm_llm(MODEL, skip_tokenizer_init=True, **options)


# -- declined ---------------------------------------------------------------------------------------------------------

DECLINED = {
    "heads that do not divide": (dict(tensor_parallel_size=3), "tensor"),
    "expert parallel": (dict(tensor_parallel_size=2, enable_expert_parallel=True), "expert"),
    "lora": (dict(enable_lora=True), "LoRA"),
    "a KV type": (dict(kv_cache_dtype="fp8"), "kv-cache-dtype fp8: the engine has auto, float16"),
    "a KV type of the engine's": (dict(additional_config={"kv_dtype": "int4"}), "--kv-dtype int4: must be f16, bf16, int8"),
    "prompt embeddings": (dict(enable_prompt_embeds=True), "prompt embeddings"),
    "a longer context than the model's": (dict(max_model_len=100_000), ""),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_a_reason(name, monkeypatch):
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    options, words = DECLINED[name]
    with pytest.raises(Exception) as caught:
        with tiny(**options):
            pass
    assert words.lower() in str(caught.value).lower()


def test_a_model_the_engine_declines(tmp_path):
    import json

    config = json.loads((FIXTURES / "llama-bf16-llama3" / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu_fast_of_nobody"}))
    (tmp_path / "model.safetensors").write_bytes((FIXTURES / "llama-bf16-llama3" / "model.safetensors").read_bytes())
    with pytest.raises(Exception, match="gelu_fast_of_nobody"):
        with vllm_llm(str(tmp_path), skip_tokenizer_init=True):
            pass


def test_a_bad_variable_is_named(monkeypatch):
    monkeypatch.setenv("VLLM_METAL_MAX_BATCH_SIZE", "many")
    with pytest.raises(Exception, match="VLLM_METAL_MAX_BATCH_SIZE"):
        with tiny():
            pass


def test_the_path_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("VLLM_METAL_ATTENTION", "0")
    with pytest.raises(Exception, match="VLLM_METAL_ATTENTION"):
        with tiny():
            pass


def test_the_plugin_steps_aside(monkeypatch):
    import vllm_apple

    assert vllm_apple.register() == "vllm_apple.platform.ApplePlatform"
    monkeypatch.setenv("VLLM_PLATFORM", "apple")
    assert vllm_apple.register() == "vllm_apple.platform.ApplePlatform"
    monkeypatch.setenv("VLLM_PLATFORM", "cpu")
    assert vllm_apple.register() is None
    monkeypatch.delenv("VLLM_PLATFORM")
    monkeypatch.setenv("VLLM_APPLE_USE_ENGINE", "0")
    assert vllm_apple.register() is None


def test_the_cache_leaves_memory_to_the_system():
    """Whatever share of the memory is asked for, half a GiB stays free."""
    from types import SimpleNamespace

    from vllm_apple.ranks import Place
    from vllm_apple.worker import AppleWorker

    gib = 1 << 30
    worker = object.__new__(AppleWorker)
    worker.place = Place()
    worker.inspection = SimpleNamespace(memory={"available": 16 * gib, "total": 3 * gib, "kv_cache": gib})
    for share, usable in ((0.5, 8 * gib), (1.0, 16 * gib - gib // 2)):
        worker.cache_config = SimpleNamespace(gpu_memory_utilization=share)
        assert worker.determine_available_memory() == usable - 2 * gib
    # Workers of one machine share what it has.
    worker.place = Place(sharers=2)
    worker.cache_config = SimpleNamespace(gpu_memory_utilization=0.5)
    assert worker.determine_available_memory() == 4 * gib - 2 * gib


# -- clamped, warned --------------------------------------------------------------------------------------------------


@pytest.fixture
def logged():
    """Lines of the plugin's own logger."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("vllm.apple")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_limits_are_clamped_with_one_line(logged, monkeypatch):
    monkeypatch.setenv("VLLM_METAL_MAX_BATCH_SIZE", "96")
    with tiny(max_num_batched_tokens=4096, max_num_seqs=200) as llm:
        scheduler = llm.llm_engine.vllm_config.scheduler_config
        assert (scheduler.max_num_batched_tokens, scheduler.max_num_seqs) == (96, 96)
        assert worker_of(llm).engine.limits.max_step_tokens == 96
        assert tokens_of(generate(llm, tiny_prompts(), NEW)) == native_tokens(MODEL, tiny_prompts(), NEW)
    clamped = [line for line in logged if "limits" in line]
    assert clamped == ["the engine's limits: max_num_batched_tokens 4096 -> 96, max_num_seqs 200 -> 96"]


def test_an_untested_version_is_warned_about(logged, monkeypatch):
    import vllm
    from vllm_apple import compat

    monkeypatch.setattr(vllm, "__version__", "0.99.1")
    compat.warn_if_untested()
    assert len(logged) == 1
    assert all(word in logged[0] for word in ("0.12.0", "0.32.0", "0.99.1"))


# -- passed on --------------------------------------------------------------------------------------------------------


def test_the_kv_cache_is_the_engines_alone():
    with tiny() as llm:
        worker = worker_of(llm)
        generate(llm, tiny_prompts(), 2)
        held = [v for v in vars(worker).values() if type(v).__module__.startswith("torch") and hasattr(v, "numel")]
        assert held == []
        assert worker.engine.limits.num_blocks == llm.llm_engine.vllm_config.cache_config.num_gpu_blocks


KV_TYPES = {
    "float32": ("f32", dict(dtype="float32")),
    "bfloat16": ("bf16", dict(kv_cache_dtype="bfloat16")),
    "int8 by vLLM's name": ("int8", dict(kv_cache_dtype="int8_per_token_head")),
    "int8 by the engine's": ("int8", dict(additional_config={"kv_dtype": "int8"})),
}


@pytest.mark.parametrize("name", KV_TYPES)
def test_the_type_of_the_kv_cache(name):
    """What vLLM counts a block as is what the engine allocates for it, and the tokens are the native ones."""
    from vllm.config import cache

    kv_dtype, options = KV_TYPES[name]
    if options.get("kv_cache_dtype", "auto") not in get_args(cache.CacheDType):
        pytest.skip("this version of vLLM has no such name")
    with tiny(**options) as llm:
        specs = worker_of(llm).get_kv_cache_spec().values()
        planned = ingot.inspect(MODEL, kv_blocks=200, kv_dtype=kv_dtype).memory["kv_cache"]
        assert planned == 200 * sum(spec.page_size_bytes for spec in specs)
        expected = native_tokens(MODEL, tiny_prompts(), NEW, kv_dtype=kv_dtype)
        assert tokens_of(generate(llm, tiny_prompts(), NEW)) == expected


def test_made_up_weights(tmp_path):
    """load_format=dummy: a config alone will do."""
    (tmp_path / "config.json").write_bytes((FIXTURES / "llama-bf16-llama3" / "config.json").read_bytes())
    with vllm_llm(str(tmp_path), skip_tokenizer_init=True, load_format="dummy") as llm:
        assert [len(tokens) for tokens in tokens_of(generate(llm, tiny_prompts()[:2], NEW))] == [NEW, NEW]


def test_sampling_is_the_native_one():
    """Seeds, top-k, top-p, penalties: the same draws as the native orchestrator's, for all go into the same engine."""
    options = dict(temperature=0.9, top_k=20, top_p=0.9, min_p=0.02, seed=7, repetition_penalty=1.3, presence_penalty=0.4,
                   frequency_penalty=0.2, logit_bias={5: 2.0}, ignore_eos=True)
    with tiny() as llm:
        assert tokens_of(generate(llm, tiny_prompts(), NEW, **options)) == native_tokens(MODEL, tiny_prompts(), NEW, **options)


@pytest.mark.parametrize("dtype, expected", [("auto", 1e-2), ("float32", 1e-2)])
def test_logprobs_and_prompt_logprobs(dtype, expected):
    with tiny(dtype=dtype) as llm:
        output = generate(llm, tiny_prompts()[:1], 3, logprobs=4, prompt_logprobs=2)[0]
        assert len(output.prompt_logprobs) == len(output.prompt_token_ids)
        assert all(token in entry for token, entry in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]))
        for token, entry in zip(output.outputs[0].token_ids, output.outputs[0].logprobs):
            assert entry[token].rank == 1 and len(entry) == 4


def test_priority():
    """The scheduler is vLLM's: with priorities the urgent request is answered first."""
    from vllm import SamplingParams

    with tiny(scheduling_policy="priority", max_num_seqs=1) as llm:
        prompts = [{"prompt_token_ids": ids} for ids in tiny_prompts()[:3]]
        params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
        outputs = llm.generate(prompts, params, priority=[5, 5, -5], use_tqdm=False)
        assert tokens_of(outputs) == native_tokens(MODEL, tiny_prompts()[:3], 4)


# -- the logits path --------------------------------------------------------------------------------------------------


def bar_even_tokens():
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class BarEvenTokens(LogitsProcessor):
        """Of requests with the extra argument `odd`: rows are followed as the batch changes."""

        def __init__(self, vllm_config, device, is_pin_memory):
            self.rows = set()

        def is_argmax_invariant(self):
            return False

        def update_state(self, batch_update):
            if batch_update is None:
                return
            self.rows.difference_update(batch_update.removed)
            for row, params, _, _ in batch_update.added:
                self.rows.discard(row)
                if (params.extra_args or {}).get("odd"):
                    self.rows.add(row)
            for source, target, _ in batch_update.moved:
                self.rows.discard(target)
                if source in self.rows:
                    self.rows.remove(source)
                    self.rows.add(target)

        def apply(self, logits):
            for row in self.rows:
                logits[row, ::2] = -float("inf")
            return logits

    return BarEvenTokens


def test_a_custom_logits_processor():
    from vllm import SamplingParams

    prompts = tiny_prompts()
    plain = native_tokens(MODEL, prompts, NEW)
    with tiny(logits_processors=[bar_even_tokens()], max_num_seqs=3, max_num_batched_tokens=64) as llm:
        params = [
            SamplingParams(max_tokens=NEW - 2 * (i % 3), temperature=0, ignore_eos=True, extra_args={"odd": True} if i % 2 else None)
            for i in range(len(prompts))
        ]
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        for i, tokens in enumerate(tokens_of(outputs)):
            if i % 2:
                assert all(token % 2 for token in tokens)
            else:
                assert tokens == plain[i][: len(tokens)]


def test_topk_logits(monkeypatch):
    monkeypatch.setenv("VLLM_METAL_TOPK_LOGITS", "8")
    prompts = tiny_prompts()
    with tiny() as llm:
        assert not llm.llm_engine.vllm_config.scheduler_config.async_scheduling
        assert tokens_of(generate(llm, prompts, NEW)) == native_tokens(MODEL, prompts, NEW)
        handed = worker_of(llm).logits
        assert handed.top == 8
        # A draw from far and wide stays among the eight.
        drawn = generate(llm, prompts[:1] * 3, NEW, temperature=2.0, logprobs=8)
        ranks = [entry[t].rank for o in drawn for t, entry in zip(o.outputs[0].token_ids, o.outputs[0].logprobs)]
        assert max(ranks) <= 8 and len(set(ranks)) > 2
        assert np.isfinite([e[t].logprob for o in drawn for t, e in zip(o.outputs[0].token_ids, o.outputs[0].logprobs)]).all()


def test_more_top_logits_than_the_engine_hands_over(monkeypatch):
    monkeypatch.setenv("VLLM_METAL_TOPK_LOGITS", "4000")
    with pytest.raises(Exception, match="VLLM_METAL_TOPK_LOGITS"):
        with tiny():
            pass
