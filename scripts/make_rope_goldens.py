#!/usr/bin/env python3
"""Writes tests/fixtures/rope.json: rotary frequencies and attention factors as transformers computes them.

  pip install torch transformers
"""
import copy
import json
import pathlib

from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "rope.json"

CASES = {
    "default": dict(head_dim=64, rope_theta=100000.0),
    "default_small": dict(head_dim=16, rope_theta=10000.0),
    "linear": dict(head_dim=128, rope_theta=10000.0, rope_scaling=dict(rope_type="linear", factor=4.0)),
    "llama3_8b": dict(head_dim=128, rope_theta=500000.0, max_position_embeddings=131072,
                      rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=8192)),
    "llama3_1b": dict(head_dim=64, rope_theta=500000.0, max_position_embeddings=131072,
                      rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=8192)),
    "yarn": dict(head_dim=128, rope_theta=10000.0, max_position_embeddings=65536,
                 rope_scaling=dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=4096)),
    "yarn_betas": dict(head_dim=64, rope_theta=1000000.0, max_position_embeddings=131072,
                       rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768,
                                         beta_fast=24.0, beta_slow=2.0)),
    "yarn_not_truncated": dict(head_dim=64, rope_theta=150000.0, max_position_embeddings=131072,
                               rope_scaling=dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096,
                                                 truncate=False)),
    "yarn_attention_factor": dict(head_dim=64, rope_theta=10000.0, max_position_embeddings=16384,
                                  rope_scaling=dict(rope_type="yarn", factor=4.0,
                                                    original_max_position_embeddings=4096, attention_factor=0.8)),
    "yarn_mscale": dict(head_dim=64, rope_theta=10000.0, max_position_embeddings=163840,
                        rope_scaling=dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096,
                                          mscale=1.0, mscale_all_dim=0.707)),
    "yarn_short_context": dict(head_dim=16, rope_theta=500.0, max_position_embeddings=256,
                               rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32)),
}


def main():
    cases = []
    for name, values in CASES.items():
        heads = 4
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": heads,
                  "num_key_value_heads": heads, "hidden_size": heads * values["head_dim"], "intermediate_size": 64,
                  "num_hidden_layers": 1, "vocab_size": 100, "max_position_embeddings": 4096, **values}
        rotary = LlamaRotaryEmbedding(LlamaConfig.from_dict(copy.deepcopy(config)))
        cases.append({"name": name, "config": config, "attention_factor": float(rotary.attention_scaling),
                      "inv_freq": [float(f"{v:.9g}") for v in rotary.inv_freq.tolist()]})
    OUT.write_text("[" + ",\n".join(json.dumps(c) for c in cases) + "]\n")


if __name__ == "__main__":
    main()
