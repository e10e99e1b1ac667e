"""A model small enough for thousands of requests a second: a checkpoint of the fixtures with a tokenizer of single bytes.

Its greedy answers wander, which a test of equal answers needs, and contain broken UTF-8.
"""

import json
import pathlib
import shutil

FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "models" / "llama-bf16-linear"
# 208 of the 256 bytes: ASCII, the bytes that continue a character, and those that begin some.
BYTES = [*range(0xC0), *range(0xC2, 0xCC), 0xD0, 0xD1, 0xE2, 0xE3, 0xE4, 0xF0]
TEMPLATE = ("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}")


def byte_alphabet():
    """The 256 characters that stand for bytes in byte-level vocabularies, in the order of the bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(other)) for byte in range(256)]


def make(folder, max_len=2048):
    """Writes the model into `folder` and returns it. Positions beyond those of the fixture are fine: nothing was trained."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((FIXTURE / "config.json").read_text())
    config["max_position_embeddings"] = max_len
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(FIXTURE / "model.safetensors", folder)
    shutil.copy(FIXTURE / "generation_config.json", folder)
    specials = ["<unk>", "<s>", "</s>"]
    alphabet = byte_alphabet()
    vocabulary = {piece: index for index, piece in enumerate([*specials, *(alphabet[byte] for byte in BYTES)])}
    assert len(vocabulary) == config["vocab_size"]
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for index, text in enumerate(specials)],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "chat_template": TEMPLATE}))
    return folder
