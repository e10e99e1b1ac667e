#!/usr/bin/env python3
"""Writes tests/fixtures/models/: tiny random checkpoints of the Llama family with reference logits.

Each folder has the model (config.json, generation_config.json, model.safetensors or shards; or model.gguf), the input
(ids.json), the fp32 logits of transformers over the stored weights (logits.npy, float32 [tokens, vocab]) and report.json:
how far the logits move when the decoder is wrong in one way. Every such mutation must move some logit by more than 0.5,
ten times the tolerance of the tests, or this script fails: default initialisation gives logits so flat that a decoder
without RoPE would pass.

  pip install torch transformers safetensors gguf numpy
  scripts/make_tiny_models.py --llama-cpp DIR      DIR: a llama.cpp source tree, for convert_hf_to_gguf.py

Without --llama-cpp the GGUF folders are left as they are. They have no tokenizer ("no_vocab"): the tests feed ids.
"""
import argparse
import json
import math
import pathlib
import shutil
import sys

import numpy as np
import torch
from safetensors.torch import save_file

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"
TOKENS = 48
LIMIT = 0.5  # what a mutation must exceed

BASE = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2,
    "vocab_size": 211, "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
}

# The three ways in which configs have spelled rotary settings all occur.
MODELS = {
    "llama-bf16-tied": dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=4, intermediate_size=152, vocab_size=331,
        tie_word_embeddings=True, torch_dtype="bfloat16"),
    "llama-f16-untied-sharded": dict(  # heads * head_dim is not hidden_size
        hidden_size=72, num_attention_heads=6, num_key_value_heads=2, head_dim=16, intermediate_size=120,
        rms_norm_eps=1e-6, torch_dtype="float16", eos_token_id=[2, 7]),
    "llama-bf16-llama3": dict(  # rows are multiples of 32: also quantized to GGUF
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=96,
        tie_word_embeddings=True, rope_theta=1000.0, torch_dtype="bfloat16",
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=64)),
    "llama-bf16-bias": dict(
        hidden_size=48, num_attention_heads=3, num_key_value_heads=1, intermediate_size=104, attention_bias=True,
        mlp_bias=True, dtype="bfloat16"),
    "llama-f16-yarn": dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=1, intermediate_size=88, rope_theta=500.0,
        torch_dtype="float16", max_position_embeddings=256,
        rope_scaling=dict(type="yarn", factor=8.0, original_max_position_embeddings=32)),
    "llama-bf16-linear": dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=80, dtype="bfloat16",
        rope_theta=None, rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0)),
    "mistral-bf16-window": dict(
        architectures=["MistralForCausalLM"], model_type="mistral", hidden_size=64, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=72, sliding_window=16, torch_dtype="bfloat16", head_dim=16),
}


def config_of(name):
    config = {**BASE, **MODELS[name]}
    return {k: v for k, v in config.items() if v is not None}


def random_weights(config, rng):
    """Gains chosen so that logits have a std just over 1, and so that a layer adds about as much as the residual stream
    holds: then a wrong layer shows, and the rounding of a fast device is not blown up."""
    h, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", h // heads)
    weights = {}

    def matrix(name, rows, cols, gain, bias=False):
        weights[f"{name}.weight"] = torch.randn(rows, cols, generator=rng) * (gain / math.sqrt(cols))
        if bias:
            weights[f"{name}.bias"] = torch.randn(rows, generator=rng) * 0.4 * gain

    def norm(name):
        weights[f"{name}.weight"] = torch.rand(h, generator=rng) + 0.5

    share = 1 / math.sqrt(h)  # std of an embedding
    matrix("model.embed_tokens", vocab, h, 1.0)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        norm(f"{layer}.input_layernorm")
        norm(f"{layer}.post_attention_layernorm")
        attention_bias, mlp_bias = config.get("attention_bias"), config.get("mlp_bias")
        matrix(f"{layer}.self_attn.q_proj", heads * size, h, 1.0, attention_bias)
        matrix(f"{layer}.self_attn.k_proj", kv * size, h, 1.0, attention_bias)
        matrix(f"{layer}.self_attn.v_proj", kv * size, h, 1.0, attention_bias)
        matrix(f"{layer}.self_attn.o_proj", h, heads * size, 1.2 * share, attention_bias)
        matrix(f"{layer}.mlp.gate_proj", ffn, h, 1.0, mlp_bias)
        matrix(f"{layer}.mlp.up_proj", ffn, h, 1.0, mlp_bias)
        matrix(f"{layer}.mlp.down_proj", h, ffn, 1.2 * share, mlp_bias)
    norm("model.norm")
    if not config["tie_word_embeddings"]:
        matrix("lm_head", vocab, h, 1.0)
    dtype = getattr(torch, config.get("torch_dtype") or config.get("dtype"))
    return {k: v.to(dtype).contiguous() for k, v in weights.items()}


def transformers_logits(folder, weights, ids):
    """fp32 logits of transformers' own model, configured by the folder's config.json."""
    from transformers import AutoConfig, AutoModelForCausalLM
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    state = {k: v.float() for k, v in weights.items()}
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float(), model.model.rotary_emb


def round_q8(x):
    """As the kernels of the block formats see activations: 8 bits in groups of 32."""
    pad = -x.shape[-1] % 32
    groups = torch.nn.functional.pad(x, (0, pad)).unflatten(-1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return ((groups / scale).round() * scale).flatten(-2)[..., :x.shape[-1]]


class Decoder:
    """The same decoder written out, so that it can be made wrong in one place at a time."""

    def __init__(self, config, weights, rotary):
        self.c, self.w = config, {k: v.float() for k, v in weights.items()}
        self.inv_freq, self.factor = rotary.inv_freq.float(), rotary.attention_scaling

    def linear(self, name, x):
        bias = self.w.get(f"{name}.bias")
        if bias is not None and self.mutation == "no_bias":
            bias = None
        if self.mutation == "bf16_activations":
            x = x.bfloat16().float()
        if self.mutation == "q8_activations":
            x = round_q8(x)
        return torch.nn.functional.linear(x, self.w[f"{name}.weight"], bias)

    def norm(self, name, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return x * scale * self.w[f"{name}.weight"]

    def rotate(self, x, heads, size):  # x [T, heads, size]
        if self.mutation == "no_rope":
            return x
        inv_freq, factor = self.inv_freq, self.factor
        pairs = torch.arange(0, size, 2).float() / size
        theta = self.c.get("rope_theta") or self.c["rope_parameters"]["rope_theta"]
        if self.mutation == "wrong_theta":
            inv_freq = inv_freq * (theta ** pairs) / ((10 * theta) ** pairs)
        if self.mutation == "no_scaling":
            inv_freq, factor = theta ** -pairs, 1.0
        angle = torch.arange(x.shape[0]).float()[:, None] * inv_freq[None, :]
        cos, sin = angle.cos()[:, None, :] * factor, angle.sin()[:, None, :] * factor
        if self.mutation == "interleaved_rope":
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
        a, b = x[..., :size // 2], x[..., size // 2:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def mask(self, n):
        i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
        window = self.c.get("sliding_window")
        if self.mutation == "mask_sees_next":
            seen = j <= i + 1
        elif self.mutation == "mask_misses_last":
            seen = (j < i) | (i == 0)
        else:
            seen = j <= i
        if window and self.mutation != "no_window":
            seen &= j > i - window + (1 if self.mutation == "window_off_by_one" else 0)
        return seen

    def attention(self, layer, x):
        n = x.shape[0]
        heads, kv = self.c["num_attention_heads"], self.c["num_key_value_heads"]
        size = self.c.get("head_dim", self.c["hidden_size"] // heads)
        q = self.rotate(self.linear(f"{layer}.q_proj", x).view(n, heads, size), heads, size)
        k = self.rotate(self.linear(f"{layer}.k_proj", x).view(n, kv, size), kv, size)
        v = self.linear(f"{layer}.v_proj", x).view(n, kv, size)
        of = [h % kv if self.mutation == "wrong_gqa" else h // (heads // kv) for h in range(heads)]
        score = torch.einsum("qhd,khd->hqk", q, k[:, of]) / math.sqrt(size)
        score = score.masked_fill(~self.mask(n), float("-inf")).softmax(-1)
        out = torch.einsum("hqk,khd->qhd", score, v[:, of]).reshape(n, heads * size)
        return self.linear(f"{layer}.o_proj", out)

    def logits(self, ids, mutation=None):
        self.mutation = mutation
        x = self.w["model.embed_tokens.weight"][torch.tensor(ids)]
        for i in range(self.c["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            x = x + self.attention(f"{layer}.self_attn", self.norm(f"{layer}.input_layernorm", x))
            y = self.norm(f"{layer}.post_attention_layernorm", x)
            gate = torch.nn.functional.silu(self.linear(f"{layer}.mlp.gate_proj", y))
            x = x + self.linear(f"{layer}.mlp.down_proj", gate * self.linear(f"{layer}.mlp.up_proj", y))
        head = "model.embed_tokens" if self.c["tie_word_embeddings"] else "lm_head"
        return self.linear(head, self.norm("model.norm", x))


def mutations_of(config):
    names = ["no_rope", "wrong_theta", "interleaved_rope", "mask_sees_next", "mask_misses_last"]
    if 1 < config["num_key_value_heads"] < config["num_attention_heads"]:
        names.append("wrong_gqa")
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if rope:
        names.append("no_scaling")
    if config.get("attention_bias"):
        names.append("no_bias")
    if config.get("sliding_window"):
        names += ["no_window", "window_off_by_one"]
    return names


def reference(name, folder, config, weights, ids):
    """Reference logits; writes logits.npy and report.json."""
    logits, rotary = transformers_logits(folder, weights, ids)
    decoder = Decoder(config, weights, rotary)
    own = (decoder.logits(ids) - logits).abs().max().item()
    assert own < 2e-4, f"{name}: the written-out decoder differs from transformers by {own}"
    spread = logits.std().item()
    assert spread >= 1.0, f"{name}: logits are too flat, std {spread}"
    moved = {}
    for mutation in mutations_of(config):
        moved[mutation] = round((decoder.logits(ids, mutation) - logits).abs().max().item(), 3)
        assert moved[mutation] > LIMIT, f"{name}: {mutation} moves the logits by only {moved[mutation]}"
    np.save(folder / "logits.npy", logits.numpy().astype(np.float32))
    (folder / "ids.json").write_text(json.dumps(ids) + "\n")
    # Not faults: what the rounding of a fast device costs, so that a test's tolerance can be judged.
    rounding = {kind: round((decoder.logits(ids, kind) - logits).abs().max().item(), 4)
                for kind in ("bf16_activations", "q8_activations")}
    report = {"logits_std": round(spread, 3), "written_out_decoder_max_diff": float(f"{own:.2e}"), "rounding": rounding,
              "mutations": moved}
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{name:28} std {spread:.2f}  {rounding}  " + "  ".join(f"{k} {v}" for k, v in moved.items()))


def write_weights(folder, weights, shards):
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata=metadata)
        return
    names = sorted(weights)
    weight_map = {}
    for s in range(shards):
        file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        part = names[s * len(names) // shards:(s + 1) * len(names) // shards]
        save_file({n: weights[n] for n in part}, folder / file, metadata=metadata)
        weight_map.update({n: file for n in part})
    total = sum(w.numel() * w.element_size() for w in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def make_model(name, seed):
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = config_of(name)
    rng = torch.Generator().manual_seed(seed)
    weights = random_weights(config, rng)
    ids = torch.randint(3, config["vocab_size"], (TOKENS,), generator=rng).tolist()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = {"bos_token_id": 1, "eos_token_id": config["eos_token_id"]}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1) + "\n")
    write_weights(folder, weights, shards=3 if name.endswith("sharded") else 1)
    reference(name, folder, config, weights, ids)
    return config, weights, ids


# ---- GGUF ------------------------------------------------------------------------------------------------------------

def convert(source, target, outtype):
    """llama.cpp's own converter, told that there is no tokenizer."""
    import gguf
    from conversion import llama as converter  # noqa: F401
    model_class = converter.LlamaModel
    model_class.set_vocab = model_class._set_vocab_none
    ftype = {"bf16": gguf.LlamaFileType.MOSTLY_BF16, "f16": gguf.LlamaFileType.MOSTLY_F16}[outtype]
    with torch.inference_mode():
        model_class(source, ftype, target, model_name=source.name).write()


def quantized_copy(source, target, kind):
    """The same file with its matrices in `kind`; the embedding in Q8_0, as real files have it."""
    import gguf
    kinds = gguf.GGMLQuantizationType
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        writer.add_key_value(key, field.contents(), field.types[0], field.types[-1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if len(tensor.shape) < 2:
            writer.add_tensor(tensor.name, values.astype(np.float32))
            continue
        to = kinds.Q8_0 if tensor.name == "token_embd.weight" else kind
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, to), raw_dtype=to)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def gguf_weights(path, config):
    """The dequantized weights under Hugging Face's names, with the rows of q and k back in their order."""
    import gguf
    weights = {}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        values = torch.from_numpy(np.array(values, dtype=np.float32)).reshape([int(d) for d in reversed(tensor.shape)])
        parts = tensor.name.split(".")
        if parts[0] == "blk":
            name = f"model.layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.{parts[3]}"
        else:
            name = f"{GGUF_NAMES[parts[0]]}.{parts[1]}"
        if parts[-2] in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if parts[-2] == "attn_q" else "num_key_value_heads"]
            half = values.shape[0] // heads // 2
            values = values.reshape(heads, half, 2, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        weights[name] = values
    return weights


def make_gguf(name, source, config, weights, ids, kind):
    import gguf
    folder = FIXTURES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    target = folder / "model.gguf"
    if kind == "bf16":
        convert(FIXTURES / source, target, kind)
    else:
        plain = folder / "plain.gguf"
        convert(FIXTURES / source, plain, "bf16")
        quantized_copy(plain, target, gguf.GGMLQuantizationType[kind.upper()])
        plain.unlink()
    read = gguf_weights(target, config)
    if kind == "bf16":
        assert all(torch.equal(read[k], v.float()) for k, v in weights.items()), "conversion changed the weights"
    shutil.copy(FIXTURES / source / "config.json", folder / "config.json")  # for the reference only
    reference(name, folder, config, read, ids)
    (folder / "config.json").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = {name: make_model(name, 100 + i) for i, name in enumerate(MODELS)}
    if args.llama_cpp:
        sys.path[:0] = [str(args.llama_cpp), str(args.llama_cpp / "gguf-py")]  # its gguf fits its converter
        for kind in ("bf16", "f16", "q8_0", "q4_0"):
            source = "llama-bf16-llama3"
            make_gguf(f"gguf-{kind}-llama3", source, *made[source], kind)
        make_gguf("gguf-bf16-bias", "llama-bf16-bias", *made["llama-bf16-bias"], "bf16")


if __name__ == "__main__":
    main()
