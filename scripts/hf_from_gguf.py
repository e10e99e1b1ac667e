"""Builds the Hugging Face `tokenizers` object that a GGUF vocabulary came from, or reads a tokenizer folder.

The vocabulary, merges and scores are those of the file; the pre-tokenizer, normalizer, decoder and post-processor are the
published ones of the model family.
"""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


PRE = {
    "gpt-2": lambda: byte_level(True),
    "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama-bpe": lambda: pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]),
    "qwen2": lambda: pre_tokenizers.Sequence([split(QWEN2), byte_level(False)]),
    "tekken": lambda: pre_tokenizers.Sequence([split(TEKKEN), byte_level(False)]),
}
PRE["starcoder"] = PRE["refact"] = PRE["command-r"] = PRE["smollm"]
PRE["mpt"] = PRE["gpt-2"]


def score_merges(tokens, scores, types):
    """Merges of a SentencePiece BPE vocabulary, in the order of Hugging Face's converter: every way to cut a token into two
    tokens, best score first, then the longest left part, then the longest right part."""
    usable = {t: i for i, t in enumerate(tokens) if types[i] in (1, 5)}
    merges = []
    for token, i in usable.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in usable and right in usable:
                merges.append((scores[i], left, right))
    merges.sort(key=lambda m: (m[0], len(m[1]), len(m[2])), reverse=True)
    return [(m[1], m[2]) for m in merges]


def from_gguf(path):
    from gguf import GGUFReader

    fields = {}
    for key, field in GGUFReader(path).fields.items():
        if key.startswith("tokenizer."):
            fields[key] = field.contents()
    tokens = fields["tokenizer.ggml.tokens"]
    types = fields["tokenizer.ggml.token_type"]
    kind = fields["tokenizer.ggml.model"]
    pre = fields.get("tokenizer.ggml.pre", "default")
    special = [i for i, t in enumerate(types) if t in (2, 3)]
    plain = [i for i, t in enumerate(types) if t == 4]
    vocab = {t: i for i, t in enumerate(tokens)}
    if kind == "gpt2":
        merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
        tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in ("llama-bpe", "tekken")))
        tok.pre_tokenizer = PRE[pre]()
        if pre == "qwen2":
            tok.normalizer = normalizers.NFC()
        tok.decoder = decoders.ByteLevel()
    else:
        if kind == "llama":
            merges = score_merges(tokens, fields["tokenizer.ggml.scores"], types)
        else:
            merges = [(m[: m.index(" ", 1)], m[m.index(" ", 1) + 1 :]) for m in fields["tokenizer.ggml.merges"]]
        unk = tokens[fields["tokenizer.ggml.unknown_token_id"]]
        tok = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unk, fuse_unk=True, byte_fallback=True))
        prefix = fields.get("tokenizer.ggml.add_space_prefix", kind == "llama")
        steps = [normalizers.Prepend("▁")] if prefix else []
        tok.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tok.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if prefix else []))
    tok.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in special])
    tok.add_tokens([AddedToken(tokens[i], normalized=False, special=False) for i in plain])
    return tok


def load(path):
    """A GGUF file, a folder with tokenizer.json, or a tokenizer.json."""
    if path.endswith(".gguf"):
        return from_gguf(path)
    if os.path.isdir(path):
        path = os.path.join(path, "tokenizer.json")
    return Tokenizer.from_file(path)
