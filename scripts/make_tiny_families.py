#!/usr/bin/env python3
"""Writes the folders of tests/fixtures/models/ that are not of the Llama family: tiny random checkpoints of every other
family, from safetensors and, by llama.cpp's own converter and llama-quantize, from GGUF, with reference logits.

The files of a folder are those of make_tiny_models.py. The weights are numbers that bf16 and f16 both hold exactly, so
the formats of one family share their logits: fp32, from transformers. A mutation is a change to the configuration, the
weights or the modules of transformers' model; each must move some logit by more than 0.5, ten times the tolerance of the
tests, or this script fails.

  pip install torch transformers safetensors gguf numpy
  scripts/make_tiny_families.py --llama-cpp DIR --quantize BINARY [NAME...]

DIR: a llama.cpp source tree; BINARY: its llama-quantize. NAMEs: only these families.
"""
import argparse
import copy
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"
TOKENS = 48
LIMIT = 0.5
GAP = 0.05  # between router logits: several times what bf16 activations move them

COMMON = dict(bos_token_id=1, eos_token_id=2, max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="silu")

# formats: safetensors types, then GGUF ones.
FAMILIES = {
    "mistral": dict(
        config=dict(COMMON, architectures=["MistralForCausalLM"], model_type="mistral", vocab_size=151, hidden_size=40,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,  # 4 * 16 is not 40
                    intermediate_size=72, rope_theta=5000.0, sliding_window=None, tie_word_embeddings=False),
        formats=["f16", "gguf-bf16", "gguf-f16"],
        mutations=["wrong_theta", "no_rope"]),
    "qwen2": dict(
        config=dict(COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=151, hidden_size=40,
                    num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, intermediate_size=104,
                    rope_theta=2000.0, tie_word_embeddings=True, use_sliding_window=False),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16"],
        mutations=["no_bias", "wrong_theta"]),
    "qwen2-window": dict(
        config=dict(COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=131, hidden_size=48,
                    num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, intermediate_size=56,
                    rope_theta=2000.0, tie_word_embeddings=False, use_sliding_window=True, sliding_window=11,
                    max_window_layers=1),
        formats=["bf16"],
        mutations=["no_window", "all_window"]),
    "qwen3": dict(
        config=dict(COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=151, hidden_size=48,
                    num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=24, intermediate_size=88,
                    rope_theta=2000.0, tie_word_embeddings=False, attention_bias=False),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16"],
        mutations=["no_qk_norm", "no_norm_weights", "wrong_theta"]),
    "qwen3moe": dict(
        config=dict(COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=151,
                    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                    intermediate_size=96, rope_theta=2000.0, tie_word_embeddings=False, attention_bias=False,
                    num_experts=7, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
                    decoder_sparse_step=1, mlp_only_layers=[]),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16", "gguf-q8_0"],
        mutations=["fewer_experts", "other_experts", "no_topk_norm", "no_qk_norm"]),
    "qwen3moe-sparse": dict(
        config=dict(COMMON, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", vocab_size=131,
                    hidden_size=56, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                    intermediate_size=56, rope_theta=2000.0, tie_word_embeddings=True, attention_bias=False,
                    num_experts=5, num_experts_per_tok=2, moe_intermediate_size=40, norm_topk_prob=False,
                    decoder_sparse_step=2, mlp_only_layers=[3]),
        formats=["bf16"],
        mutations=["topk_norm", "other_experts"]),
    "gpt2": dict(
        config=dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", vocab_size=149, n_embd=48, n_layer=2, n_head=3,
                    n_positions=64, n_ctx=64, n_inner=None, activation_function="gelu_new", layer_norm_epsilon=1e-5,
                    bos_token_id=1, eos_token_id=2),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16"],
        mutations=["no_positions", "no_bias", "no_norm_bias", "silu"]),
    "smollm3": dict(
        config=dict(COMMON, architectures=["SmolLM3ForCausalLM"], model_type="smollm3", vocab_size=151, hidden_size=48,
                    num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=2, intermediate_size=56,
                    rope_theta=2000.0, tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
                    no_rope_layers=[1, 1, 1, 0, 1], use_sliding_window=False, pad_token_id=0),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16"],
        mutations=["rope_everywhere", "wrong_theta"]),
    "gemma3": dict(
        config=dict(COMMON, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=151, hidden_size=64,
                    num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=2, head_dim=24, intermediate_size=96,
                    hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=24, rope_theta=50000.0,
                    rope_local_base_freq=300.0, sliding_window=12, sliding_window_pattern=6, tie_word_embeddings=True,
                    attn_logit_softcapping=None, final_logit_softcapping=None, pad_token_id=0),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16", "gguf-q8_0"],
        mutations=["no_window", "no_local_rope", "no_embedding_scale", "no_post_norms", "no_qk_norm", "no_norm_offset",
                   "no_query_scale"]),
    "gemma3-scaled": dict(
        config=dict(COMMON, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=131, hidden_size=40,
                    num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2, head_dim=16, intermediate_size=72,
                    hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=9, rope_theta=800.0,
                    rope_local_base_freq=300.0, sliding_window=9, sliding_window_pattern=2, tie_word_embeddings=True,
                    rope_scaling=dict(rope_type="linear", factor=8.0), pad_token_id=0),
        formats=["bf16"],
        mutations=["no_window", "no_query_scale", "no_scaling"]),
    "qwen3-wide": dict(  # rows of whole K blocks (256)
        config=dict(COMMON, architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=131, hidden_size=256,
                    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=64, intermediate_size=256,
                    rope_theta=2000.0, tie_word_embeddings=False, attention_bias=False),
        formats=["gguf-q4_1", "gguf-q5_0", "gguf-q5_1", "gguf-q2_k", "gguf-q3_k_m", "gguf-q4_k_m", "gguf-q5_k_m",
                 "gguf-q6_k"],
        mutations=["no_qk_norm", "wrong_theta"]),
    "granite": dict(
        config=dict(COMMON, architectures=["GraniteForCausalLM"], model_type="granite", vocab_size=151, hidden_size=72,
                    num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=1, intermediate_size=88,
                    rope_theta=2000.0, tie_word_embeddings=False, attention_bias=False, mlp_bias=False,
                    rms_norm_eps=0.5,  # so that its unit shows
                    embedding_multiplier=12.0, attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=8.0),
        formats=["bf16", "f16", "gguf-bf16", "gguf-f16"],
        mutations=["no_embedding_multiplier", "no_attention_multiplier", "no_residual_multiplier", "no_logits_scaling",
                   "unscaled_eps", "wrong_theta"]),
}

# Prompts of the whole context: only some rows of logits are kept.
LONG_TOKENS = 32768
LONG_POSITIONS = [0, 1, 4095, 4096, 8191, 20000, 31000, 32766, 32767]
LONG = {
    "long-llama3": dict(COMMON, architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=67, hidden_size=32,
                        num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40,
                        max_position_embeddings=32768, rope_theta=10000.0, tie_word_embeddings=True,
                        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                          original_max_position_embeddings=4096)),
    "long-yarn": dict(COMMON, architectures=["Qwen2ForCausalLM"], model_type="qwen2", vocab_size=67, hidden_size=32,
                      num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=40,
                      max_position_embeddings=32768, rope_theta=10000.0, tie_word_embeddings=True,
                      use_sliding_window=False,
                      rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8192)),
    "long-gemma3": dict(COMMON, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=67,
                        hidden_size=32, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                        intermediate_size=40, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=16,
                        max_position_embeddings=32768, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                        sliding_window=512, sliding_window_pattern=2, tie_word_embeddings=True, pad_token_id=0,
                        rope_scaling=dict(rope_type="linear", factor=8.0)),
}


def exact(tensor):
    """The nearest numbers that bf16 and f16 both hold."""
    rounded = tensor.bfloat16().float()
    rounded[rounded.abs() < 2.0 ** -16] = 0
    assert torch.equal(rounded.half().float(), rounded)
    return rounded


def random_state(config, shapes, rng):
    """Gains as in make_tiny_models.py: logits with a std just over 1, layers that add about as much as there is."""
    gemma = config["model_type"].startswith("gemma")
    hidden = config.get("hidden_size") or config["n_embd"]
    share = 1 / math.sqrt(hidden)
    state = {}
    for name, shape in shapes.items():
        if name.endswith("bias"):
            value = torch.randn(shape, generator=rng) * 0.4
            if any(part in name for part in ("o_proj", "c_proj", "down_proj")):
                value *= share
        elif len(shape) == 1:
            value = torch.rand(shape, generator=rng) + (-0.5 if gemma else 0.5)  # Gemma's are less one
            if gemma and "post_" in name:
                value = value * 0.5 - 0.6  # fourteen branches that add little each
            elif gemma and name == "model.norm.weight":
                value = value + 0.05
            elif config["model_type"] == "qwen3" and ("q_norm" in name or "k_norm" in name):
                value = value + 0.5
        else:
            gpt2_matrix = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
            fan_in = shape[0] if gpt2_matrix else shape[-1]
            gain = 1.0
            if any(part in name for part in ("o_proj", "down_proj", "c_proj")):
                gain = 1.0 if gemma else 1.2 * share
            if "mlp.c_proj" in name:
                gain = 3 * share  # so that the kind of activation shows
            if "experts.down_proj" in name:
                gain = 1.6 * share
            if "mlp.gate.weight" in name:
                gain = 1.8
            if config["model_type"] == "granite":  # as if its multipliers were 1
                if "o_proj" in name or "down_proj" in name:
                    gain *= config["embedding_multiplier"] / config["residual_multiplier"]
                elif "lm_head" in name:
                    gain *= config["logits_scaling"]
            value = torch.randn(shape, generator=rng) * (gain / math.sqrt(fan_in))
        state[name] = exact(value)
    return state


class Model:
    """transformers' own model of a configuration, in fp32."""

    def __init__(self, config, attention="eager"):
        from transformers import AutoConfig, AutoModelForCausalLM
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            loaded = AutoConfig.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_config(loaded, dtype=torch.float32, attn_implementation=attention).eval()
        self.tied = loaded.tie_word_embeddings
        self.embedding = "transformer.wte.weight" if config["model_type"] == "gpt2" else "model.embed_tokens.weight"

    def shapes(self):
        names = {k: tuple(v.shape) for k, v in self.model.state_dict().items()}
        if self.tied:
            names.pop("lm_head.weight")
        return {k: v for k, v in names.items() if not k.endswith((".attn.bias", ".attn.masked_bias"))}

    def logits(self, state, ids, patch=None):
        state = dict(state)
        if self.tied:
            state["lm_head.weight"] = state[self.embedding]
        missing, unexpected = self.model.load_state_dict(state, strict=False)
        assert not unexpected and all(m.endswith((".attn.bias", ".attn.masked_bias")) for m in missing), (missing, unexpected)
        if patch:
            patch(self.model)
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0].float()


def modules(model, ending):
    return [m for n, m in model.named_modules() if n.endswith(ending)]


def identity(model, *endings):
    for ending in endings:
        for module in modules(model, ending):
            module.forward = lambda x: x


def mutate(name, config, state):
    """(configuration, weights, patch) of a model that is wrong in one way."""
    config, state, patch = copy.deepcopy(config), dict(state), None

    def edit(match, change):
        found = [k for k in state if match(k)]
        assert found
        for key in found:
            state[key] = change(state[key])

    if name == "wrong_theta":
        config["rope_theta"] *= 10
    elif name == "no_rope":
        config["rope_theta"] = 1e30
    elif name == "no_bias":
        edit(lambda k: k.endswith("bias") and "ln_" not in k, torch.zeros_like)
    elif name == "no_norm_bias":
        edit(lambda k: k.endswith("bias") and "ln_" in k, torch.zeros_like)
    elif name == "no_window":
        config["sliding_window"] = 255
    elif name == "all_window":
        config["max_window_layers"] = 0
    elif name == "no_qk_norm":
        patch = lambda m: identity(m, "q_norm", "k_norm")
    elif name == "no_norm_weights":
        edit(lambda k: "q_norm" in k or "k_norm" in k, torch.ones_like)
    elif name == "fewer_experts":
        config["num_experts_per_tok"] -= 1
    elif name == "other_experts":
        edit(lambda k: "mlp.gate.weight" in k, lambda w: w.roll(1, 0))
    elif name == "no_topk_norm":
        config["norm_topk_prob"] = False
    elif name == "topk_norm":
        config["norm_topk_prob"] = True
    elif name == "no_positions":
        edit(lambda k: "wpe" in k, torch.zeros_like)
    elif name == "silu":
        config["activation_function"] = "silu"
    elif name == "rope_everywhere":
        config["no_rope_layers"] = [1] * config["num_hidden_layers"]
    elif name == "no_local_rope":
        config["rope_local_base_freq"] = config["rope_theta"]
    elif name == "no_embedding_scale":
        edit(lambda k: "embed_tokens" in k, lambda w: w / math.sqrt(config["hidden_size"]))
    elif name == "no_post_norms":
        patch = lambda m: identity(m, "post_attention_layernorm", "post_feedforward_layernorm")
    elif name == "no_norm_offset":
        edit(lambda k: k.endswith("norm.weight"), lambda w: w - 1)
    elif name == "no_query_scale":
        config["query_pre_attn_scalar"] = 1
    elif name == "no_scaling":
        config.pop("rope_scaling")
    elif name == "unscaled_eps":
        config["rms_norm_eps"] *= config["residual_multiplier"] ** 2
    elif name.startswith("no_") and name[3:] in config:
        config.pop(name[3:])
    else:
        raise ValueError(name)
    return config, state, patch


def stored_weights(state):
    """Experts one by one, as the hub has them."""
    weights = {}
    for name, value in state.items():
        if name.endswith("mlp.experts.gate_up_proj"):
            prefix = name[:-len("gate_up_proj")]
            for e, both in enumerate(value):
                weights[f"{prefix}{e}.gate_proj.weight"], weights[f"{prefix}{e}.up_proj.weight"] = both.chunk(2)
        elif name.endswith("mlp.experts.down_proj"):
            for e, down in enumerate(value):
                weights[f"{name[:-len('down_proj')]}{e}.down_proj.weight"] = down
        else:
            weights[name] = value
    return weights


def write_checkpoint(folder, config, state, dtype):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = {"bf16": "bfloat16", "f16": "float16"}[dtype]
    (folder / "config.json").write_text(json.dumps(dict(config, torch_dtype=name), indent=1) + "\n")
    weights = {k: v.to(getattr(torch, name)).contiguous() for k, v in stored_weights(state).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_reference(folder, ids, logits, report):
    np.save(folder / "logits.npy", logits.numpy().astype(np.float32))
    (folder / "ids.json").write_text(json.dumps(ids) + "\n")
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")


# ---- GGUF ------------------------------------------------------------------------------------------------------------

def convert(source, target, dtype):
    """llama.cpp's own converter, told that there is no tokenizer."""
    import gguf
    from conversion import get_model_class
    config = json.loads((source / "config.json").read_text())
    model_class = get_model_class(config["architectures"][0])
    model_class.set_vocab = model_class._set_vocab_none
    # Gemma's converter cuts the embedding to the tokenizer's size.
    vocabulary = {"model": {"vocab": {str(i): i for i in range(config["vocab_size"])}}, "added_tokens": []}
    (source / "tokenizer.json").write_text(json.dumps(vocabulary))
    ftype = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16}[dtype]
    with torch.inference_mode():
        model_class(source, ftype, target, model_name="tiny").write()
    (source / "tokenizer.json").unlink()


GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "gate", "ffn_up_exps": "up", "ffn_down_exps": "mlp.experts.down_proj",
}
GEMMA_NAMES = dict(GGUF_NAMES, post_attention_norm="post_attention_layernorm", ffn_norm="pre_feedforward_layernorm",
                   post_ffw_norm="post_feedforward_layernorm")


def gguf_state(path, gemma):
    """The dequantized weights under transformers' names; only for families whose rows keep their order."""
    import gguf
    state = {}
    for tensor in gguf.GGUFReader(path).tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values = torch.from_numpy(np.array(values, dtype=np.float32)).reshape([int(d) for d in reversed(tensor.shape)])
        parts = tensor.name.split(".")
        name = (GEMMA_NAMES if gemma else GGUF_NAMES)[parts[-2]]
        if gemma and "norm" in parts[-2]:
            values = values - 1
        prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
        state[prefix + name + ("" if "exps" in parts[-2] else ".weight")] = values
    for key in [k for k in state if k.endswith(".gate")]:
        layer = key[:-len("gate")]
        state[f"{layer}mlp.experts.gate_up_proj"] = torch.cat((state.pop(key), state.pop(f"{layer}up")), 1)
    return state


def clear_choice(model, state, ids, per_token):
    """How far apart the last expert taken and the first one left are, at the closest: rounding must not swap them."""
    gaps = []

    def hook(module, inputs, _):
        top = torch.nn.functional.linear(inputs[0].reshape(-1, inputs[0].shape[-1]), module.weight).topk(per_token + 1).values
        gaps.append((top[:, -2] - top[:, -1]).min().item())

    hooks = [m.register_forward_hook(hook) for m in modules(model.model, "mlp.gate")]
    model.logits(state, ids)
    for h in hooks:
        h.remove()
    return min(gaps)


def make(name, family, seed, quantize):
    config = {k: v for k, v in family["config"].items() if v is not None or k == "sliding_window"}
    model = Model(config)
    while True:
        rng = torch.Generator().manual_seed(seed)
        state = random_state(config, model.shapes(), rng)
        ids = torch.randint(3, config["vocab_size"], (TOKENS,), generator=rng).tolist()
        if "num_experts" not in config or clear_choice(model, state, ids, config["num_experts_per_tok"]) > GAP:
            break
        seed += 1000
    logits = model.logits(state, ids)
    moved = {}
    for mutation in family["mutations"]:
        wrong_config, wrong_state, patch = mutate(mutation, config, state)
        wrong = Model(wrong_config).logits(wrong_state, ids, patch)
        moved[mutation] = round((wrong - logits).abs().max().item(), 3)
    spread = logits.std().item()
    print(f"{name:18} std {spread:.2f}  {moved}")
    assert spread >= 1, spread
    assert all(v > LIMIT for v in moved.values()), moved
    report = {"logits_std": round(spread, 3), "mutations": moved}

    for form in family["formats"]:
        folder = FIXTURES / f"{name}-{form}"
        if not form.startswith("gguf-"):
            write_checkpoint(folder, config, state, form)
            write_reference(folder, ids, logits, report)
            continue
        kind = form[len("gguf-"):]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory() as temporary:
            source = pathlib.Path(temporary) / "source"
            write_checkpoint(source, config, state, "f16" if kind == "f16" else "bf16")
            plain = pathlib.Path(temporary) / "plain.gguf"
            convert(source, plain, "f16" if kind == "f16" else "bf16")
            if kind in ("bf16", "f16"):
                shutil.copy(plain, folder / "model.gguf")
                write_reference(folder, ids, logits, report)
                continue
            subprocess.run([quantize, plain, folder / "model.gguf", kind], check=True, capture_output=True)
        read = gguf_state(folder / "model.gguf", name.startswith("gemma"))
        quantized = model.logits(read, ids)
        print(f"  {kind}: {(quantized - logits).abs().max():.3f} from the unquantized")
        write_reference(folder, ids, quantized, report)


def make_long(name, config, seed):
    """Attention here goes by blocks of rows (sdpa): 32,768 squared is too much at once."""
    rng = torch.Generator().manual_seed(seed)
    model = Model(config, "sdpa")
    state = random_state(config, model.shapes(), rng)
    ids = torch.randint(3, config["vocab_size"], (LONG_TOKENS,), generator=rng).tolist()
    logits = model.logits(state, ids)[LONG_POSITIONS]
    # The last rows must feel the scaling of the rotary angles.
    unscaled = {k: v for k, v in config.items() if k != "rope_scaling"}
    moved = (Model(unscaled, "sdpa").logits(state, ids)[LONG_POSITIONS] - logits).abs().max().item()
    print(f"{name:18} std {logits.std():.2f}  no_scaling {moved:.2f}")
    folder = FIXTURES / f"{name}-f16"
    write_checkpoint(folder, config, state, "f16")
    report = {"logits_std": round(logits.std().item(), 3), "mutations": {"no_scaling": round(moved, 3)}}
    write_reference(folder, ids, logits, report)
    (folder / "positions.json").write_text(json.dumps(LONG_POSITIONS) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--quantize", type=pathlib.Path, required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]  # its gguf fits its converter
    for i, (name, family) in enumerate(FAMILIES.items()):
        if not args.names or name in args.names:
            make(name, family, 300 + i, args.quantize)
    for i, (name, config) in enumerate(LONG.items()):
        if not args.names or name in args.names:
            make_long(name, config, 500 + i)


if __name__ == "__main__":
    main()
