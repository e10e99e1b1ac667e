#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizers: small tokenizers of every structure, and what the reference libraries do with hard text.

usage: make_tokenizer_goldens.py OUT_DIR DEFAULT_MODEL.gguf
Needs: pip install tokenizers gguf mistral-common. The references: Hugging Face `tokenizers`, and for tekken.json the
tokenizer of mistral-common. Each folder NAME/ gets tokenizer.json or tekken.json, sometimes a tokenizer_config.json, and
goldens.json:
  encode      token ids of every text of corpus.json, without added BOS/EOS, special tokens parsed; a long result is
              [-1, how many, FNV-1a hash of the ids as little-endian 32-bit words]
  special     the same for a few texts with BOS/EOS added
  literal     [index, ids] where special tokens written in the text must stay text
  decode      [ids, text, text without special tokens] for the texts of `special` and for random ids
default/ has only goldens.json: its vocabulary is that of the default model.
"""
import base64
import collections
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import hf_from_gguf
import tokenizer_corpus
from hf_from_gguf import LLAMA3, QWEN2, TEKKEN, byte_level, split

CORPUS = [t.decode(errors="replace") for t in tokenizer_corpus.corpus()]
WITH_SPECIAL = list(range(0, len(tokenizer_corpus.SENTENCES), 9))
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little"):
            h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def compact(ids):
    return ids if len(ids) <= 200 else [-1, len(ids), f"{fnv(ids):016x}"]


def train(tok, size, special=(), initial=True):
    text = [t for t in CORPUS if len(t) < 600] * 3 + [open(tokenizer_corpus.__file__).read()]
    if initial:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    else:
        # The commonest characters, chosen here: the trainer breaks ties at random.
        count = collections.Counter("".join(text).replace(" ", "▁"))
        alphabet = sorted(count, key=lambda c: (-count[c], c))[:160]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(special), show_progress=False, min_frequency=2,
                                  initial_alphabet=alphabet, limit_alphabet=len(alphabet))
    tok.train_from_iterator(text, trainer)
    return tok


def byte_bpe(pre, size=900, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), normalizer=None, **options):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    train(tok, size, special)
    if options:
        spec = json.loads(tok.to_str())
        spec["model"].update(options)
        tok = Tokenizer.from_str(json.dumps(spec))
    tok.decoder = decoders.ByteLevel()
    return tok


def spm(normalizer, pre, decoder, size=700, special=("<unk>", "<s>", "</s>"), fallback=True, fuse=True):
    """SentencePiece as Hugging Face writes it: characters, byte fallback, U+2581 for spaces."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    if normalizer:
        tok.normalizer = normalizer
    # Without a pre-tokenizer whole texts would be words: learn from words cut at spaces.
    tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next") if pre is None or not getattr(pre, "split", True) else pre
    if pre is not None and normalizer is None and tok.pre_tokenizer is not pre:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=pre.prepend_scheme, split=True)
    train(tok, size, list(special) + (BYTES if fallback else []), initial=False)
    spec = json.loads(tok.to_str())
    # Byte tokens are plain vocabulary.
    spec["added_tokens"] = [t for t in spec["added_tokens"] if t["content"] not in BYTES]
    spec["pre_tokenizer"] = None
    tok = Tokenizer.from_str(json.dumps(spec))
    if pre is not None:
        tok.pre_tokenizer = pre
    tok.decoder = decoder
    return tok


def template(tok, bos, eos=None):
    pieces = f"{bos} $A" + (f" {eos}" if eos else "")
    names = [bos] + ([eos] if eos else [])
    return processors.TemplateProcessing(single=pieces, pair=f"{pieces} $B", special_tokens=[(n, tok.token_to_id(n)) for n in names])


def llama_decoder(strip=True):
    return decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if strip else []))


def build():
    yield "gpt2", byte_bpe(byte_level(True)), {}

    tok = byte_bpe(byte_level(True, prefix=True), special=("<s>", "</s>", "<unk>"))
    tok.post_processor = processors.RobertaProcessing(("</s>", tok.token_to_id("</s>")), ("<s>", tok.token_to_id("<s>")))
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    yield "roberta", tok, {}

    yield "smollm", byte_bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(True)])), {}

    special = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
    tok = byte_bpe(pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]), special=special, ignore_merges=True)
    # Some merges gone: their words are now found whole, not built.
    spec = json.loads(tok.to_str())
    spec["model"]["merges"] = [m for i, m in enumerate(spec["model"]["merges"]) if i < 150 or i % 7]
    made = {"".join(m) for m in spec["model"]["merges"]} | set(pre_tokenizers.ByteLevel.alphabet())
    spec["model"]["merges"] = [" ".join(m) for m in spec["model"]["merges"] if m[0] in made and m[1] in made]
    tok = Tokenizer.from_str(json.dumps(spec))
    tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template(tok, "<|begin_of_text|>")])
    config = {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>", "special": True}, "tokenizer_class": "PreTrainedTokenizerFast",
              "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]}
    yield "llama3", tok, config

    yield "qwen2", byte_bpe(pre_tokenizers.Sequence([split(QWEN2), byte_level(False)]), normalizer=normalizers.NFC()), {}
    yield "tekken-hf", byte_bpe(pre_tokenizers.Sequence([split(TEKKEN), byte_level(False)]), special=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"), ignore_merges=True), {}

    # GPT-4o's pattern and one of DeepSeek's: executed as regular expressions.
    o200k = ("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
             "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
    yield "o200k", byte_bpe(pre_tokenizers.Sequence([split(o200k), byte_level(False)])), {}
    deepseek = pre_tokenizers.Sequence([
        split(r"\p{N}{1,3}"), split(r"[一-龥぀-ゟ゠-ヿ]+"),
        split(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""), byte_level(False)])
    yield "deepseek", byte_bpe(deepseek), {}

    # Every split behaviour, strings and patterns, inverted ones too, contiguous digits.
    odd = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\s*\n"), "merged_with_previous"), pre_tokenizers.Split("-", "merged_with_next"), pre_tokenizers.Split(Regex(r"\w+\W?"), "removed", invert=True),
        pre_tokenizers.Split(Regex(r"[aeiou]"), "contiguous"), pre_tokenizers.Split("th", "isolated", invert=True), pre_tokenizers.Split(Regex(r"\d{2,3}+x?|^b|e$"), "isolated"), pre_tokenizers.Digits(individual_digits=False), byte_level(True)])
    tok = byte_bpe(odd, size=700, normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.Replace(Regex(r"\p{M}+"), ""), normalizers.Replace(Regex(r" {2,}"), "  ")]))
    tok.add_tokens([AddedToken("wordonly", single_word=True, normalized=False), AddedToken("<R>", rstrip=True, normalized=False), AddedToken("<L>", lstrip=True, normalized=False), AddedToken("<LR>", lstrip=True, rstrip=True, normalized=False)])
    yield "behaviours", tok, {}

    legacy = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok = spm(legacy, None, llama_decoder())
    tok.post_processor = template(tok, "<s>")
    config = {"bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}, "unk_token": {"content": "<unk>"}, "pad_token": None, "add_bos_token": True, "add_eos_token": False, "tokenizer_class": "LlamaTokenizer", "chat_template": "{{ bos_token }}"}
    yield "llama2", tok, config

    tok = spm(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), llama_decoder())
    tok.post_processor = template(tok, "<s>", "</s>")
    yield "mistral", tok, {}

    tok = spm(normalizers.Replace(" ", "▁"), None, llama_decoder(strip=False), special=("<pad>", "<eos>", "<bos>", "<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.add_tokens([AddedToken(t, normalized=False) for t in ("\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "<tag>", "</tag>")])
    tok.add_special_tokens([AddedToken(t, normalized=False) for t in ("<start_of_turn>", "<end_of_turn>")])
    tok.post_processor = template(tok, "<bos>")
    yield "gemma", tok, {}

    # Metaspace decoder, no byte fallback: unknown characters; normalized added tokens.
    tok = spm(normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Lowercase()]), pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
              decoders.Metaspace(prepend_scheme="always"), fallback=False, fuse=False, size=500)
    tok.add_tokens([AddedToken("Added", normalized=True), AddedToken("<mask>", lstrip=True, normalized=True), AddedToken("wordonly", single_word=True, normalized=True)])
    yield "unknowns", tok, {}
    tok = spm(None, pre_tokenizers.Metaspace(prepend_scheme="never", split=True), decoders.Metaspace(prepend_scheme="never"), fallback=False, fuse=True, size=500)
    yield "fused", tok, {}


def random_ids(tok, rng, specials):
    """Id lists whose byte-fallback runs are whole characters or one cut one: only there do all decoders agree."""
    size = tok.get_vocab_size()
    byte = [tok.token_to_id(b) for b in BYTES]
    plain = [i for i in range(size) if tok.id_to_token(i) is not None and i not in byte]
    out = []
    for _ in range(40):
        ids = []
        for _ in range(rng.randrange(1, 12)):
            if byte[0] is not None and rng.random() < 0.3:
                run = rng.choice("é你😀क").encode() if rng.random() < 0.7 else "😀".encode()[: rng.randrange(1, 4)]
                ids += [byte[b] for b in run] + [rng.choice(plain)]
            else:
                ids.append(rng.choice(plain))
        out.append(ids)
    if specials:
        out += [[rng.choice(specials), rng.choice(plain), rng.choice(specials)] for _ in range(5)]
    return out


def goldens(tok, seed):
    rng = random.Random(seed)
    encode = lambda t, special=False: tok.encode(t, add_special_tokens=special).ids
    added = tok.get_added_tokens_decoder()
    specials = [i for i, t in added.items() if t.special]
    # How a special token that is also normalized decodes differs between versions of the library.
    skip = {i for i, t in added.items() if t.normalized}
    decode = lambda ids: [ids, tok.decode(ids, skip_special_tokens=False), tok.decode(ids, skip_special_tokens=True)]
    with_special = [encode(CORPUS[i], True) for i in WITH_SPECIAL]
    out = {"made_with": f"tokenizers {tokenizers.__version__}", "encode": [compact(encode(t)) for t in CORPUS], "special": [[i, ids] for i, ids in zip(WITH_SPECIAL, with_special)]}
    out["decode"] = [decode(ids) for ids in with_special + random_ids(tok, rng, specials) if not skip & set(ids)]
    tok.encode_special_tokens = True
    out["literal"] = [[i, ids] for i, t in enumerate(CORPUS) if (ids := encode(t)) and compact(ids) != out["encode"][i]]
    tok.encode_special_tokens = False
    return out


def tekken(folder, listed):
    """The real Tekken vocabulary, cut down; the reference is mistral-common's own tokenizer."""
    import mistral_common
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    with open(os.path.join(os.path.dirname(mistral_common.__file__), "data/tekken_240911.json")) as f:
        spec = json.load(f)
    spec.pop("image", None)
    spec["vocab"] = spec["vocab"][:900]
    spec["config"].update(num_vocab_tokens=900, default_vocab_size=800 + (40 if listed else 24), default_num_special_tokens=40 if listed else 24)
    if listed:
        spec["config"]["version"] = "v11"
        names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[ARGS]"]
        spec["special_tokens"] = [{"rank": i, "token_str": n, "is_control": True} for i, n in enumerate(names)]
    path = os.path.join(folder, "tekken.json")
    with open(path, "w") as f:
        json.dump(spec, f, separators=(",", ":"))
    tok = Tekkenizer.from_file(path)
    # Its encoder never looks for special tokens in text: what Ingot calls literal.
    encode = lambda t, special=False: tok.encode(t, bos=special, eos=False)
    out = {"made_with": f"mistral-common {mistral_common.__version__}", "special": [], "encode": [], "decode": []}
    out["literal"] = [[i, encode(t)] for i, t in enumerate(CORPUS) if len(t) < 600]
    rng = random.Random(5)
    # Only plain tokens: that tokenizer decodes the stretches between special tokens one by one.
    for _ in range(40):
        ids = [rng.randrange(tok.num_special_tokens, tok.n_words) for _ in range(rng.randrange(1, 12))]
        out["decode"].append([ids, tok.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP), tok.decode(ids, special_token_policy=SpecialTokenPolicy.IGNORE)])
    return out


def write(path, value):
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"), ensure_ascii=True)
        f.write("\n")


def main():
    out, default_model = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    write(os.path.join(out, "corpus.json"), [base64.b64encode(t).decode() for t in tokenizer_corpus.corpus()])
    for seed, (name, tok, config) in enumerate(build()):
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "tokenizer.json"), json.loads(tok.to_str()))
        if config:
            write(os.path.join(folder, "tokenizer_config.json"), config)
        write(os.path.join(folder, "goldens.json"), goldens(Tokenizer.from_file(os.path.join(folder, "tokenizer.json")), seed))
    for name, listed in (("tekken", False), ("tekken-listed", True)):
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        write(os.path.join(folder, "goldens.json"), tekken(folder, listed))
    folder = os.path.join(out, "default")
    os.makedirs(folder, exist_ok=True)
    write(os.path.join(folder, "goldens.json"), goldens(hf_from_gguf.from_gguf(default_model), 77))


main()
