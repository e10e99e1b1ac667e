#!/usr/bin/env python3
"""Writes the folders of tests/fixtures/models/ whose weights others have packed into few bits: AWQ (by AutoAWQ's own
packing), GPTQ (by AutoGPTQ's) and MLX (by mlx-lm's quantizer), with reference logits: fp32, from transformers, over the
weights that the same packages unpack.

  pip install 'mlx[cpu]' mlx-lm torch transformers safetensors numpy
  pip install --no-deps autoawq auto-gptq accelerate psutil
  scripts/make_packed_models.py [NAME...]

Only the modules that pack are used of autoawq and auto-gptq: neither runs with a current transformers.
"""
import argparse
import importlib
import importlib.util
import json
import pathlib
import shutil
import sys
import tempfile
import types

import mlx.core as mx
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import make_tiny_families as tiny

SIZES = dict(tiny.COMMON, vocab_size=151, hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=256, rope_theta=2000.0, tie_word_embeddings=False)
LLAMA = dict(SIZES, architectures=["LlamaForCausalLM"], model_type="llama", head_dim=32)
QWEN2 = dict(SIZES, architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False)
TIED = dict(LLAMA, tie_word_embeddings=True)
MOE = dict(SIZES, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", head_dim=32, num_experts=7,
           num_experts_per_tok=3, moe_intermediate_size=64, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
           attention_bias=False, hidden_size=64)

MODELS = {
    "llama-bf16-wide": dict(config=LLAMA, method="none"),  # what the others of its family were packed from
    "qwen2-awq-g128": dict(config=QWEN2, method="awq", group=128),
    "llama-awq-g64": dict(config=LLAMA, method="awq", group=64),
    "llama-gptq-g128-sym": dict(config=LLAMA, method="gptq", group=128, sym=True),
    "qwen2-gptq-g32-asym": dict(config=QWEN2, method="gptq", group=32, sym=False),
    "llama-gptq-v2-asym": dict(config=LLAMA, method="gptq", group=128, sym=False, v2=True),
    "llama-gptq-act": dict(config=LLAMA, method="gptq", group=64, sym=True, act=True),
    "llama-gptq-8bit": dict(config=LLAMA, method="gptq", group=128, sym=True, bits=8),
    "llama-mlx-4bit": dict(config=LLAMA, method="mlx", group=64, dtype="f16"),
    "llama-mlx-8bit": dict(config=TIED, method="mlx", group=64, bits=8, dtype="bf16"),
    "llama-mlx-mixed": dict(config=TIED, method="mlx", group=128, dtype="bf16", coarse_embedding=False),
    "qwen3moe-mlx-4bit": dict(config=MOE, method="mlx", group=32, dtype="bf16"),
}


def import_bare(module):
    """`module` without what the packages around it run when they are imported."""
    parts = module.split(".")
    path = None
    for i in range(1, len(parts)):
        package = ".".join(parts[:i])
        if package not in sys.modules:
            found = importlib.util.find_spec(package) if i == 1 else None
            path = pathlib.Path(found.submodule_search_locations[0]) if found else path / parts[i - 1]
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = [str(path)]
        path = pathlib.Path(sys.modules[package].__path__[0])
    return importlib.import_module(module)


def is_packed(name, value):
    return value.dim() == 2 and ".layers." in name


def rounding(weight, group, bits, symmetric, order=None):
    """Scales and zero points [groups, out] of round-to-nearest, f16 scales. `order`: the group of each column."""
    out, cols = weight.shape
    top = 2 ** bits - 1
    order = torch.arange(cols) // group if order is None else order
    scales, zeros = [], []
    for g in range(cols // group):
        columns = weight[:, order == g]
        if symmetric:
            scale = 2 * columns.abs().amax(1) / top
            zero = torch.full_like(scale, 2 ** (bits - 1))
        else:
            low, high = columns.amin(1).clamp(max=0), columns.amax(1).clamp(min=0)
            scale = (high - low) / top
            zero = (-low / scale).round().clamp(1, top)  # version 1 of gptq cannot store 0
        scales.append(scale.half().float())
        zeros.append(zero)
    return torch.stack(scales), torch.stack(zeros)


def clipped(weight, scales, zeros, order, bits):
    """The weights rounded to a level each: packers do not clip."""
    s, z = scales[order].T, zeros[order].T
    return ((weight / s + z).round().clamp(0, 2 ** bits - 1) - z) * s


def linear_of(weight):
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    linear.weight.data = weight
    return linear


def pack_awq(name, weight, group, **_):
    gemm = import_bare("awq.modules.linear.gemm")
    gemm.get_best_device = lambda: "cpu"
    scales, zeros = rounding(weight, group, 4, False)
    weight = clipped(weight, scales, zeros, torch.arange(weight.shape[1]) // group, 4)
    packed = gemm.WQLinear_GEMM.from_linear(linear_of(weight), 4, group, scales=scales.clone(), zeros=zeros)
    packing = import_bare("awq.utils.packing_utils")
    codes, offsets = packing.unpack_awq(packed.qweight, packed.qzeros, 4)
    codes, offsets = packing.reverse_awq_order(codes, offsets, 4)
    codes, offsets = (codes & 15).float(), (offsets & 15).float()
    s = packed.scales.float().repeat_interleave(group, 0)
    back = ((codes - offsets.repeat_interleave(group, 0)) * s).T.contiguous()
    return {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales.half()}, back


def pack_gptq(name, weight, group, bits, sym, act, v2, rng):
    module = import_bare("auto_gptq.nn_modules.qlinear." + ("qlinear_cuda" if act else "qlinear_cuda_old"))
    out, cols = weight.shape
    order = torch.arange(cols) // group
    if act:
        order = order[torch.randperm(cols, generator=rng)]
    scales, zeros = rounding(weight, group, bits, sym, order)
    weight = clipped(weight, scales, zeros, order, bits)
    packed = module.QuantLinear(bits, group, cols, out, bias=False, weight_dtype=torch.float16)
    packed.pack(linear_of(weight), scales.T.contiguous().clone(), zeros.T.contiguous().clone(), order.int())
    packed.scales = packed.scales.half()
    packed.g_idx = order.int()
    # The package's own product, of the unit matrix, in full precision.
    packed.autogptq_cuda_available = False
    unit = torch.eye(cols)
    packed.scales = packed.scales.float()
    back = packed(unit).T.contiguous().float()
    assert (back - weight).abs().max() < 1e-3, name
    packed.scales = packed.scales.half()
    tensors = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales, "g_idx": packed.g_idx}
    if v2:  # as GPTQModel turns version 1 into 2: the zero points themselves
        tensors["qzeros"] = (tensors["qzeros"].to(torch.int64) + 0x11111111).to(torch.int32)
    return tensors, back


def write_packed(folder, config, state, spec, rng):
    method, bits = spec["method"], spec.get("bits", 4)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors, back = {}, {}
    for name, value in state.items():
        if not is_packed(name, value):
            tensors[name], back[name] = value.half(), value.half().float()
            continue
        if method == "awq":
            packed, back[name] = pack_awq(name, value, spec["group"])
        else:
            packed, back[name] = pack_gptq(name, value, spec["group"], bits, spec["sym"], spec.get("act", False),
                                           spec.get("v2", False), rng)
        for kind, tensor in packed.items():
            tensors[name[:-len("weight")] + kind] = tensor.contiguous()
    if method == "awq":
        how = dict(quant_method="awq", bits=bits, group_size=spec["group"], zero_point=True, version="gemm",
                   modules_to_not_convert=None)
    else:
        how = dict(quant_method="gptq", bits=bits, group_size=spec["group"], sym=spec["sym"],
                   desc_act=spec.get("act", False), checkpoint_format="gptq_v2" if spec.get("v2") else "gptq")
    (folder / "config.json").write_text(
        json.dumps(dict(config, torch_dtype="float16", quantization_config=how), indent=1) + "\n")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return back


def write_mlx(folder, config, state, spec):
    from mlx_lm import utils
    bits = spec.get("bits", 4)
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as source:
        tiny.write_checkpoint(pathlib.Path(source) / "base", config, state, spec["dtype"])
        model, loaded = utils.load_model(pathlib.Path(source) / "base")
        predicate = getattr(model, "quant_predicate", None)
        if "coarse_embedding" in spec:  # a mixed one: the embedding in 8 bits, one matrix not at all
            predicate = lambda path, _: (dict(group_size=64, bits=8) if "embed_tokens" in path
                                         else "layers.1.self_attn.o_proj" not in path)
        model, quantized = utils.quantize_model(model, loaded, spec["group"], bits, quant_predicate=predicate)
        utils.save_model(folder, model)
        utils.save_config(quantized, folder / "config.json")
    stored = mx.load(str(folder / "model.safetensors"))
    how = quantized["quantization"]
    back = {}
    for name, value in stored.items():
        if name.endswith((".scales", ".biases")):
            continue
        base = name[:-len(".weight")]
        if base + ".scales" in stored:
            own = how.get(base, how)
            value = mx.dequantize(value, stored[base + ".scales"].astype(mx.float32),
                                  stored[base + ".biases"].astype(mx.float32), own["group_size"], own["bits"])
        back[name] = torch.from_numpy(np.array(value.astype(mx.float32)))
    return fuse_experts(back)


def fuse_experts(state):
    """mlx-lm's three stacks of experts as transformers' two."""
    fused = {}
    for name, value in state.items():
        if ".switch_mlp.gate_proj." in name:
            up = state[name.replace("gate_proj", "up_proj")]
            fused[name.replace("switch_mlp.gate_proj.weight", "experts.gate_up_proj")] = torch.cat([value, up], 1)
        elif ".switch_mlp.down_proj." in name:
            fused[name.replace("switch_mlp.down_proj.weight", "experts.down_proj")] = value
        elif ".switch_mlp." not in name:
            fused[name] = value
    return fused


def make(name, spec, seed):
    config, folder = spec["config"], tiny.FIXTURES / name
    model = tiny.Model(config)
    while True:
        rng = torch.Generator().manual_seed(seed)
        state = tiny.random_state(config, model.shapes(), rng)
        state["model.norm.weight"] = tiny.exact(state["model.norm.weight"] * 1.15)  # wider than the families' models
        ids = torch.randint(3, config["vocab_size"], (tiny.TOKENS,), generator=rng).tolist()
        if spec["method"] == "none":
            tiny.write_checkpoint(folder, config, state, "bf16")
            back = state
        elif spec["method"] == "mlx":
            back = write_mlx(folder, config, state, spec)
        else:
            back = write_packed(folder, config, state, spec, rng)
        if "num_experts" not in config or tiny.clear_choice(model, back, ids, config["num_experts_per_tok"]) > tiny.GAP:
            break
        seed += 1000
    plain, logits = model.logits(state, ids), model.logits(back, ids)
    # What a reader that mixes up its bits would see.
    wrong = {k: (v.roll(1, 0) if v.dim() > 1 and ".layers.1." in k else v) for k, v in back.items()}
    moved = {"rows_off_by_one": round((model.logits(wrong, ids) - logits).abs().max().item(), 3)}
    wrong_config, _, _ = tiny.mutate("wrong_theta", config, back)
    moved["wrong_theta"] = round((tiny.Model(wrong_config).logits(back, ids) - logits).abs().max().item(), 3)
    spread, lost = logits.std().item(), (plain - logits).abs().max().item()
    print(f"{name:22} std {spread:.2f}  {lost:.3f} from the unquantized  {moved}")
    assert spread >= 1 and all(v > tiny.LIMIT for v in moved.values()), (spread, moved)
    report = {"logits_std": round(spread, 3), "mutations": moved}
    if lost > 0:
        report["from_the_unquantized"] = round(lost, 3)
    tiny.write_reference(folder, ids, logits, report)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    for i, (name, spec) in enumerate(MODELS.items()):
        if not args.names or name in args.names:
            make(name, spec, 700 + i)


if __name__ == "__main__":
    main()
