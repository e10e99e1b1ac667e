#!/usr/bin/env python3
"""What Apple's GPUs could decode at most: the bytes of a step over the bandwidth of each chip. A prediction, not a measurement.

    bench/roofline.py            the tables of docs/metal.md
    bench/roofline.py --share 1  with all of the bandwidth

The bytes are those that the software device counts (`ingot bench --device metal --traffic`): weights once a step, the KV cache
once, each operand of each operation once. Arithmetic is not in it: with many rows and few bits a weight, it can be the limit.
"""

import argparse
import json
import pathlib

CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "configs"
BITS = {"bf16": 16.0, "Q8_0": 8.5, "Q4_K": 4.5}
READ_TWICE = 1.03  # weights loaded over weights stored, as counted at batch 8

# name, GB/s, largest memory in GB: Apple's figures
CHIPS = [
    ("M1", 68, 16), ("M1 Pro", 200, 32), ("M1 Max", 400, 64), ("M1 Ultra", 800, 128),
    ("M2", 100, 24), ("M2 Pro", 200, 32), ("M2 Max", 400, 96), ("M2 Ultra", 800, 192),
    ("M3", 100, 24), ("M3 Pro", 150, 36), ("M3 Max", 400, 128), ("M3 Ultra", 819, 512),
    ("M4", 120, 32), ("M4 Pro", 273, 64), ("M4 Max", 546, 128),
    ("M5", 153, 32), ("M5 Pro", 307, 64), ("M5 Max", 614, 128),
]
COLUMNS = [("Devstral-Small-2507", "bf16"), ("Devstral-Small-2507", "Q4_K"), ("Qwen3-30B-A3B", "bf16"), ("Qwen3-30B-A3B", "Q4_K"),
           ("Qwen2-0.5B", "bf16"), ("TinyLlama-1.1B", "bf16")]


class Model:
    def __init__(self, name):
        c = json.loads((CONFIGS / name / "config.json").read_text())
        self.hidden, self.layers, self.vocab = c["hidden_size"], c["num_hidden_layers"], c["vocab_size"]
        heads = c["num_attention_heads"]
        head = c.get("head_dim") or self.hidden // heads
        self.q, self.kv = heads * head, c["num_key_value_heads"] * head
        self.experts, self.active = c.get("num_experts", 0), c.get("num_experts_per_tok", 0)
        self.ffn = c["moe_intermediate_size"] if self.experts else c["intermediate_size"]
        self.tied = c.get("tie_word_embeddings", False)

    def attention(self):
        return self.hidden * (2 * self.q + 2 * self.kv)

    def expert(self):
        return 3 * self.hidden * self.ffn

    def stored(self):
        mlps = self.experts or 1
        return self.layers * (self.attention() + mlps * self.expert()) + self.hidden * self.vocab * (1 if self.tied else 2)

    def read(self, batch):
        """Weights that a step of `batch` rows needs; experts as if the router chose each as often as any other."""
        mlps = self.experts * (1 - (1 - self.active / self.experts) ** batch) if self.experts else 1
        return self.layers * (self.attention() + mlps * self.expert()) + self.hidden * self.vocab

    def step_bytes(self, batch, bits, context):
        row = self.layers * (4 * 4 * self.hidden + 2 * (2 * self.hidden + 2 * self.q + 2 * self.kv + self.ffn * (self.active or 1)))
        row += 6 * self.hidden + 4 * self.vocab
        cache = self.layers * 2 * self.kv * 2 * context
        return self.read(batch) * bits / 8 * READ_TWICE + batch * (cache + row)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.85, help="of the bandwidth that kernels reach (default 0.85)")
    parser.add_argument("--context", type=int, default=512, help="positions a sequence has (default 512)")
    args = parser.parse_args()
    for batch in (1, 8):
        print(f"Batch {batch}, tok/s of all sequences together:\n")
        print("| chip | GB/s | " + " | ".join(f"{name} {form}" for name, form in COLUMNS) + " |")
        print("|---|---|" + "---|" * len(COLUMNS))
        for chip, bandwidth, memory in CHIPS:
            cells = []
            for name, form in COLUMNS:
                model = Model(name)
                if model.stored() * BITS[form] / 8 > 0.75 * memory * 1e9:
                    cells.append("-")
                    continue
                rate = batch * args.share * bandwidth * 1e9 / model.step_bytes(batch, BITS[form], args.context)
                cells.append(f"{rate:.3g}" if rate < 1000 else f"{rate:,.0f}")
            print(f"| {chip} | {bandwidth} | " + " | ".join(cells) + " |")
        print()


if __name__ == "__main__":
    main()
