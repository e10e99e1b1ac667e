"""vLLM's configuration as options of the engine."""

import os
from typing import Optional

import ingot

from . import drafts, quantization, ranks
from .declined import Declined

_KV_DTYPES = {
    "auto": "f16",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "int8_per_token_head": "int8",  # what vLLM means by it is what the engine does
}


def kv_dtype(vllm_config) -> str:
    """f16 as the native server has it, unless the user says otherwise; dtype=float32 keeps the cache in f32 too.

    additional_config={"kv_dtype": ...} takes the engine's own names: vLLM 0.12.0 has none for int8.
    """
    extra = getattr(vllm_config, "additional_config", None)
    if isinstance(extra, dict) and "kv_dtype" in extra:
        return str(extra["kv_dtype"])
    name = str(vllm_config.cache_config.cache_dtype)
    if name == "auto" and str(vllm_config.model_config.dtype) == "torch.float32":
        return "f32"
    if name not in _KV_DTYPES:
        raise Declined(
            f"--kv-cache-dtype {name}: the engine has {', '.join(_KV_DTYPES)}; for eight bits where vLLM does not know the "
            'last, additional_config={"kv_dtype": "int8"}'
        )
    return _KV_DTYPES[name]


def check_features(vllm_config) -> None:
    """Declines what the engine does not do, before anything is loaded."""
    model = vllm_config.model_config
    ranks.check(vllm_config)
    if vllm_config.lora_config is not None:
        raise Declined("LoRA adapters are not supported: merge the adapter into the model")
    if vllm_config.speculative_config is not None:
        drafts.check(vllm_config.speculative_config)
        if wants_logits(vllm_config):
            raise Declined("speculative_config: drafts are verified where tokens are drawn, which logits processors and "
                           "VLLM_METAL_TOPK_LOGITS take out of the engine; leave one of them out")
    if getattr(vllm_config, "kv_transfer_config", None) is not None:
        raise Declined("KV transfer is not possible: the KV cache is the engine's alone")
    if model is None:
        return
    if getattr(model, "runner_type", "generate") != "generate":
        raise Declined(f"the engine generates text; --runner {model.runner_type} is not supported")
    if getattr(model, "is_multimodal_model", False):
        raise Declined("multimodal models are not supported")
    if getattr(model, "enable_prompt_embeds", False):
        raise Declined("prompt embeddings are not supported: the engine takes token ids")
    if model.quantization is not None and not quantization.at_load(model) and not quantization.is_stored(model):
        raise Declined(
            f"quantization {model.quantization}: weights are rounded at load by int8 and int4, and quantized checkpoints need "
            "no flag"
        )
    if str(getattr(model, "logprobs_mode", "raw_logprobs")).split(".")[-1].lower() != "raw_logprobs":
        raise Declined(f"logprobs_mode {model.logprobs_mode}: the engine reports raw_logprobs")


def wants_logits(vllm_config) -> bool:
    """Whether someone needs logits: then vLLM's sampler draws, on the host (logits_path.py)."""
    model = vllm_config.model_config
    return bool(ingot.settings()["topk_logits"] or (model is not None and getattr(model, "logits_processors", None)))


def find_model(model_config) -> str:
    """The path of the model: vLLM's own, or what its name on the hub stands for; the engine fetches the weights."""
    name, revision = model_config.model, model_config.revision
    return ingot.find_model(f"{name}@{revision}" if revision and not os.path.lexists(name) else name)


def make_draft_options(vllm_config) -> Optional[dict]:
    """The same of the draft model; None: there is none."""
    config = vllm_config.speculative_config
    if config is None or config.method != "draft_model":
        return None
    draft = config.draft_model_config
    options = make_options(vllm_config)
    # The blocks are numbered by the positions of the large model; those beyond its own are never asked for.
    options.update(model=find_model(draft), quantize="", max_model_len=0, max_logits_rows=1)
    return options


def make_options(vllm_config) -> dict:
    """Keyword arguments of ingot.Engine and ingot.inspect; the number of KV blocks is vLLM's to add."""
    scheduler = vllm_config.scheduler_config
    return {
        "model": find_model(vllm_config.model_config),
        "quantize": quantization.at_load(vllm_config.model_config),
        "load_format": "dummy" if str(vllm_config.load_config.load_format) == "dummy" else "auto",
        "max_model_len": vllm_config.model_config.max_model_len,
        "block_size": vllm_config.cache_config.block_size,
        "kv_dtype": kv_dtype(vllm_config),
        "max_step_tokens": scheduler.max_num_batched_tokens,
        "max_seqs": scheduler.max_num_seqs,
        "max_logits_rows": scheduler.max_num_seqs if wants_logits(vllm_config) else 1,
    }
