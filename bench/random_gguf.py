"""Writes GGUF files of random weights in the shapes of real models, for benchmarks that must load one file in two programs.

Blocks are written as they lie in the file, from one pattern of a few MiB read round and round, so that 8 billion weights take as
long as the disk does. Standard library only.
"""

import math
import os
import pathlib
import random
import struct

# The shapes of models of the Llama family: what their config.json says.
SHAPES = {
    "tinyllama-1.1b": {"hidden": 2048, "layers": 22, "heads": 32, "kv_heads": 4, "mlp": 5632, "vocab": 32000},
    "llama3-8b": {"hidden": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "mlp": 14336, "vocab": 128256},
}

# name: number in the file, elements and bytes a block, the file's number (general.file_type)
FORMATS = {
    "F32": (0, 1, 4, 0), "BF16": (30, 1, 2, 32), "Q4_0": (2, 32, 18, 2), "Q4_1": (3, 32, 20, 3), "Q8_0": (8, 32, 34, 7),
    "Q4_K": (12, 256, 144, 14), "Q6_K": (14, 256, 210, 18),
}
DEVIATION = 0.02  # of a weight
ALIGNMENT = 32
PATTERN_BLOCKS = 40009  # a prime: rows whose length is a power of two meet every part of it


def half(value):
    return struct.pack("<e", value)


def pattern(name):
    """Blocks of random codes whose scales give weights of DEVIATION around 0."""
    source = random.Random(name)
    size = FORMATS[name][2]
    if name == "BF16":
        values = [source.gauss(0, DEVIATION) for _ in range(1 << 20)]
        single = struct.pack(f"<{len(values)}f", *values)
        out = bytearray(2 * len(values))
        out[0::2], out[1::2] = single[2::4], single[3::4]
        return bytes(out)
    blocks = bytearray(source.randbytes(PATTERN_BLOCKS * size))

    def put(at, data):
        for i, byte in enumerate(data):
            blocks[at + i::size] = bytes([byte]) * PATTERN_BLOCKS

    code = DEVIATION / 4.61  # the deviation of a random code of 4 bits is 4.61
    if name == "Q4_0":
        put(0, half(code))
    elif name == "Q4_1":
        put(0, half(code) + half(-7.5 * code))
    elif name == "Q8_0":
        put(0, half(DEVIATION / 73.9))
    elif name == "Q4_K":  # scales of 6 bits, random too
        put(0, half(DEVIATION / 220) + half(7.5 * DEVIATION / 220))
    elif name == "Q6_K":  # scales of 8 bits
        put(208, half(DEVIATION / 1366))
    else:
        raise ValueError(name)
    return bytes(blocks)


def tensors(shape, name):
    """(name, format, [rows, cols]) of each tensor; norms are vectors of ones. The head is Q6_K where the rest has 4 bits: files
    have it so."""
    hidden, mlp = shape["hidden"], shape["mlp"]
    kv = hidden // shape["heads"] * shape["kv_heads"]
    yield "token_embd.weight", name, [shape["vocab"], hidden]
    for i in range(shape["layers"]):
        yield f"blk.{i}.attn_norm.weight", "F32", [hidden]
        yield f"blk.{i}.attn_q.weight", name, [hidden, hidden]
        yield f"blk.{i}.attn_k.weight", name, [kv, hidden]
        yield f"blk.{i}.attn_v.weight", name, [kv, hidden]
        yield f"blk.{i}.attn_output.weight", name, [hidden, hidden]
        yield f"blk.{i}.ffn_norm.weight", "F32", [hidden]
        yield f"blk.{i}.ffn_gate.weight", name, [mlp, hidden]
        yield f"blk.{i}.ffn_up.weight", name, [mlp, hidden]
        yield f"blk.{i}.ffn_down.weight", name, [hidden, mlp]
    yield "output_norm.weight", "F32", [hidden]
    yield "output.weight", "Q6_K" if name.startswith("Q4") else name, [shape["vocab"], hidden]


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata(shape, model, name):
    values = [("general.architecture", "llama"), ("general.name", f"{model}, random weights"),
              ("general.file_type", FORMATS[name][3]), ("general.quantization_version", 2),
              ("llama.context_length", 8192), ("llama.embedding_length", shape["hidden"]), ("llama.block_count", shape["layers"]),
              ("llama.feed_forward_length", shape["mlp"]), ("llama.attention.head_count", shape["heads"]),
              ("llama.attention.head_count_kv", shape["kv_heads"]), ("llama.attention.layer_norm_rms_epsilon", 1e-5),
              ("llama.rope.dimension_count", shape["hidden"] // shape["heads"]), ("llama.rope.freq_base", 500000.0),
              ("llama.vocab_size", shape["vocab"]), ("tokenizer.ggml.model", "none")]
    out = struct.pack("<Q", len(values))
    for key, value in values:
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, float):
            out += struct.pack("<If", 6, value)
        else:
            out += struct.pack("<II", 4, value)
    return out


def tensor_bytes(kind, dims):
    return math.prod(dims) // FORMATS[kind][1] * FORMATS[kind][2]


def file_bytes(model, name):
    """Of all tensors; the header is small."""
    return sum(tensor_bytes(kind, dims) for _, kind, dims in tensors(SHAPES[model], name))


def write(path, model, name):
    """The file of a shape and a format; it appears when it is complete."""
    path = pathlib.Path(path)
    shape = SHAPES[model]
    listed = list(tensors(shape, name))
    sizes = [tensor_bytes(kind, dims) for _, kind, dims in listed]
    directory, offset = b"", 0
    for (tensor, kind, dims), size in zip(listed, sizes):
        directory += text(tensor) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *reversed(dims))
        directory += struct.pack("<IQ", FORMATS[kind][0], offset)
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    values = metadata(shape, model, name)
    header = b"GGUF" + struct.pack("<IQ", 3, len(listed)) + values + directory
    patterns = {}
    part = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(part, "wb") as out:
        out.write(header + bytes(-len(header) % ALIGNMENT))
        for number, ((_, kind, _), size) in enumerate(zip(listed, sizes)):
            if kind == "F32":
                out.write(struct.pack("<f", 1.0) * (size // 4))
            else:
                if kind not in patterns:
                    patterns[kind] = memoryview(pattern(kind))
                source, block = patterns[kind], FORMATS[kind][2]
                start = number * 1000003 % (len(source) // block) * block  # each tensor starts at another block
                left = size
                while left > 0:
                    piece = source[start:start + left]
                    out.write(piece)
                    left -= len(piece)
                    start = 0
            out.write(bytes(-size % ALIGNMENT))
    part.rename(path)
