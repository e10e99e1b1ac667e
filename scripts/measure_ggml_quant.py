#!/usr/bin/env python3
"""Prints the error that ggml's own quantizers make, for the figures in tests/formats/quantize_k_test.cc.

Usage: measure_ggml_quant.py PATH/TO/libggml-base.so (needs numpy). The values are those the test makes."""
import ctypes
import sys

import numpy as np

ROWS, COLS = 64, 1024
TYPES = {"q4_0": (2, 32, 18), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144)}  # ggml's number, block, bytes


def words(count):
    index = np.arange(1, count + 1, dtype=np.uint64)
    z = index * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def main():
    ggml = ctypes.CDLL(sys.argv[1])
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [
        ctypes.c_void_p]
    bell = words(ROWS * COLS).view(np.uint8).reshape(-1, 8).astype(np.int64).sum(axis=1) - 1020
    shapes = {
        "bell": bell.astype(np.float32) / 8192,
        "tails": bell.astype(np.float64)**3 / 2**30,
        "shifted": (bell.astype(np.float32) + 300) / 8192,
    }
    for shape, values in shapes.items():
        values = np.ascontiguousarray(values, dtype=np.float32)
        for name, (number, block, size) in TYPES.items():
            out = np.zeros(values.size // block * size, dtype=np.uint8)
            ggml.ggml_quantize_chunk(number, values.ctypes.data, out.ctypes.data, 0, ROWS, COLS, None)
            back = np.empty_like(values)
            function = getattr(ggml, "dequantize_row_" + name.replace("k", "K"))
            function(ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(back.ctypes.data), ctypes.c_int64(values.size))
            error = np.sqrt(np.mean((back.astype(np.float64) - values)**2) / np.mean(values.astype(np.float64)**2))
            print(f"{shape:8} {name} {error:.6f}")


if __name__ == "__main__":
    main()
