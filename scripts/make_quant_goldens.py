#!/usr/bin/env python3
"""Writes tests/fixtures/quant/: blocks of every format with the values PyPI's `gguf` reads from them.

  dequant_<type>.bin   blocks                      dequant_<type>.f32   their values
  quant_input.f32      values                      quant_<type>.bin     the blocks that `gguf` makes of them

Needs: pip install gguf numpy. Run from anywhere; the output is the same every time.
"""
import pathlib

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGML_QUANT_SIZES, quants

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "quant"
BLOCKS = {32: 24, 256: 4}
# Byte offsets of the f16 scales in a block: random bits there would be NaN or infinite now and then.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
    T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
}
LATER = {T.IQ4_NL: [0]}  # with numbers of their own, so that those above stay


def random_blocks(rng, kind):
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (BLOCKS[elements], size), dtype=np.uint8)
    for offset in {**SCALES, **LATER}[kind]:
        scale = rng.standard_normal(len(blocks)).astype(np.float16) * np.float16(0.05)
        scale[0] = np.float16(6e-8)  # a subnormal
        blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    return blocks


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20240607)
    for kind in [*SCALES, *LATER]:
        blocks = random_blocks(rng if kind in SCALES else np.random.default_rng(int(kind)), kind)
        values = quants.dequantize(blocks, kind).astype(np.float32)
        name = kind.name.lower()
        (OUT / f"dequant_{name}.bin").write_bytes(blocks.tobytes())
        (OUT / f"dequant_{name}.f32").write_bytes(values.tobytes())

    values = rng.standard_normal((32, 32)).astype(np.float32)
    values[0] = 0            # a block of zeros
    values[1] = 3.5          # of equal values
    values[2] *= 1e-6        # of tiny ones
    values[3, 5] = 200.0     # with an outlier
    values[4, 7] = -200.0
    values[5] = np.arange(32) - 16  # exact halves and ties
    values[6] = -np.abs(values[6])
    values[7] = np.abs(values[7])
    (OUT / "quant_input.f32").write_bytes(values.tobytes())
    for kind in (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.BF16):
        (OUT / f"quant_{kind.name.lower()}.bin").write_bytes(quants.quantize(values, kind).tobytes())


if __name__ == "__main__":
    main()
