#!/usr/bin/env python3
"""Writes the seeds of the format fuzzers, tests/fuzz/corpus/{gguf,safetensors,hf_config}/: small valid files, one of each
shape that the parsers know. Needs nothing but Python."""
import json
import pathlib
import struct

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"
MODELS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def scalar(kind, value):
    return text(value) if kind == STRING else struct.pack("<" + PACK[kind], value)


def value(key, kind, v):
    return text(key) + struct.pack("<I", kind) + scalar(kind, v)


def array(key, kind, values):
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(scalar(kind, v) for v in values)


def gguf(values, tensors, version=3, alignment=32):
    table, data = b"", b""
    for name, dims, kind, size in tensors:
        data += b"\0" * (-len(data) % alignment)
        table += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        table += struct.pack("<IQ", kind, len(data))
        data += bytes(i * 7 % 251 for i in range(size))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(values) + table
    return head + b"\0" * (-len(head) % alignment) + data if tensors else head


def llama(*more):
    return [
        value("general.architecture", STRING, "llama"), value("llama.block_count", U32, 1),
        value("llama.context_length", U32, 64), value("llama.embedding_length", U32, 32),
        value("llama.feed_forward_length", U32, 32), value("llama.attention.head_count", U32, 2),
        value("llama.attention.head_count_kv", U32, 1), value("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        *more]


def gguf_seeds():
    kinds = [(0, 32, 128), (1, 32, 64), (30, 32, 64), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34),
             (10, 256, 84), (11, 256, 110), (12, 256, 144), (13, 256, 176), (14, 256, 210)]
    every_value = [value(f"v{k}", k, "text" if k == STRING else 1) for k in range(13) if k != ARRAY]
    every_array = [array(f"a{k}", k, ["x", "yy"] if k == STRING else [1, 0]) for k in range(13) if k != ARRAY]
    yield "empty", gguf([], [])
    yield "values", gguf(every_value, [])
    yield "arrays", gguf(every_array, [], version=2)
    yield "types", gguf([], [(f"t{k}", [n], k, size) for k, n, size in kinds])
    yield "aligned", gguf([value("general.alignment", U32, 64)], [("a", [2], 0, 8), ("b", [2, 2], 0, 16)], alignment=64)
    yield "llama", gguf(llama(
        array("tokenizer.ggml.tokens", STRING, ["<|im_end|>", "a", "b"]),
        array("tokenizer.ggml.token_type", I32, [3, 1, 1]), value("tokenizer.ggml.eos_token_id", U32, 0),
        value("llama.rope.dimension_count", U32, 16), value("llama.rope.freq_base", F32, 1e4)),
        [("token_embd.weight", [32, 3], 0, 384), ("rope_freqs.weight", [8], 0, 32)])
    yield "yarn", gguf(llama(
        value("llama.rope.scaling.type", STRING, "yarn"), value("llama.rope.scaling.factor", F32, 8),
        value("llama.rope.scaling.original_context_length", U32, 16), value("llama.vocab_size", U32, 9),
        value("llama.rope.scaling.attn_factor", F32, 0.5), value("llama.attention.key_length", U32, 8)), [])
    yield "split", gguf([value("split.no", U16, 0), value("split.count", U16, 1), value("split.tensors.count", I32, 0)], [])


def safetensors(header, data):
    raw = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(raw)) + raw + data


def safetensors_seeds():
    entry = lambda dtype, shape, begin, end: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    yield "empty", safetensors({}, b"")
    yield "types", safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2], 0, 8),
                                "b": entry("F16", [2, 1], 8, 12), "c": entry("BF16", [1, 1, 2], 12, 16),
                                "i": entry("I64", [], 16, 24)}, bytes(24))
    yield "edges", safetensors({"e": entry("F32", [0, 4], 0, 0), "s": entry("F32", [], 0, 4)}, b"abcd")
    words = bytes(range(256))
    yield "gptq", safetensors({"m.qweight": entry("I32", [4, 8], 0, 128), "m.qzeros": entry("I32", [1, 1], 128, 132),
                               "m.scales": entry("F16", [1, 8], 132, 148), "m.g_idx": entry("I32", [32], 148, 276)},
                              words[:148] + bytes(128))
    yield "awq", safetensors({"m.qweight": entry("I32", [32, 1], 0, 128), "m.qzeros": entry("I32", [1, 1], 128, 132),
                              "m.scales": entry("F16", [1, 8], 132, 148)}, words[:148])
    yield "mlx", safetensors({"m.weight": entry("U32", [2, 4], 0, 32), "m.scales": entry("F16", [2, 1], 32, 36),
                              "m.biases": entry("BF16", [2, 1], 36, 40)}, words[:40])
    yield "experts", safetensors({"mlp.switch_mlp.up.weight": entry("U32", [2, 2, 4], 0, 64),
                                  "mlp.switch_mlp.up.scales": entry("F16", [2, 2, 1], 64, 72),
                                  "mlp.switch_mlp.up.biases": entry("F32", [2, 2, 1], 72, 88)}, words[:88])
    yield "padded", safetensors(b'{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}   ', b"ab")


def hf_config_seeds():
    for folder in sorted(MODELS.iterdir()):
        if (folder / "config.json").exists():
            config = json.dumps(json.loads((folder / "config.json").read_text())).encode()
            generation = folder / "generation_config.json"
            yield folder.name, config + (b"\0" + generation.read_bytes() if "sharded" in folder.name else b"")


def main():
    for name, seeds in (("gguf", gguf_seeds()), ("safetensors", safetensors_seeds()), ("hf_config", hf_config_seeds())):
        folder = CORPUS / name
        folder.mkdir(parents=True, exist_ok=True)
        for seed, raw in seeds:
            (folder / seed).write_bytes(raw)


if __name__ == "__main__":
    main()
