#!/usr/bin/env python3
"""Writes tests/fixtures/default_model/: what an fp32 reference of the default model's dequantized weights answers.

  greedy.json      greedy continuations of several prompts (token ids), with the gap between the two largest logits
  logits.json      a short sequence: sampled vocabulary columns of the logits, and the largest of each row
  perplexity.json  negative log likelihoods of the texts in tests/fixtures/text, by window, for windows of 1024 and 256

  pip install torch transformers tokenizers gguf numpy
  scripts/make_default_model_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf

The model is run by transformers in fp32 on the CPU; a few minutes on two cores.
"""
import hashlib
import json
import math
import pathlib
import sys
import tempfile

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from make_tiny_models import gguf_weights

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
NEW_TOKENS = 32
PROMPTS = {
    "prose": "The keeper of the lighthouse climbed the stairs and",
    "facts": "The capital of France is",
    "code": "def fibonacci(n):\n    ",
    "list": "Three primary colors are red,",
    "chat": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n",
    "chat_list": "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
                 "<|im_start|>user\nName two fruits that are yellow.<|im_end|>\n<|im_start|>assistant\n",
}
LOGITS_TEXT = "Measure twice, cut once: an old rule of carpenters that programmers (and editors) learn late, if ever. 12+30=42"
LOGITS_ROWS, LOGITS_COLUMNS = 24, 512


def field(reader, key):
    return reader.fields[key].contents()


def build_tokenizer(reader):
    """The byte-level BPE of SmolLM out of the file's vocabulary."""
    assert field(reader, "tokenizer.ggml.model") == "gpt2" and field(reader, "tokenizer.ggml.pre") == "smollm"
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in field(reader, "tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, field(reader, "tokenizer.ggml.token_type")) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return tokenizer


def build_model(path, reader):
    from transformers import AutoConfig, AutoModelForCausalLM
    key = lambda name: field(reader, f"llama.{name}")
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "num_hidden_layers": key("block_count"), "hidden_size": key("embedding_length"),
        "intermediate_size": key("feed_forward_length"), "num_attention_heads": key("attention.head_count"),
        "num_key_value_heads": key("attention.head_count_kv"), "vocab_size": key("vocab_size"),
        "max_position_embeddings": key("context_length"), "rope_theta": key("rope.freq_base"),
        "rms_norm_eps": float(f"{key('attention.layer_norm_rms_epsilon'):.6g}"), "tie_word_embeddings": True,
    }
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32).eval()
    weights = gguf_weights(path, config)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights, strict=True)
    return model


def greedy(model, ids):
    out, gaps, seconds = [], [], []
    past, inputs = None, torch.tensor([ids])
    for _ in range(NEW_TOKENS):
        result = model(inputs, past_key_values=past, use_cache=True)
        past = result.past_key_values
        values, order = result.logits[0, -1].topk(2)
        out.append(order[0].item())
        seconds.append(order[1].item())
        gaps.append(round((values[0] - values[1]).item(), 5))
        inputs = order[:1].view(1, 1)
    return out, seconds, gaps


def window_nll(model, ids):
    """Sum over every token but the first."""
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()


def perplexity(model, ids, ctx):
    windows = [ids[i:i + ctx] for i in range(0, len(ids), ctx)]
    tail = windows.pop() if len(windows[-1]) < ctx else None
    scored = [{"tokens": len(w) - 1, "nll": window_nll(model, w)} for w in windows]
    result = {"ctx": ctx, "windows": scored}
    total, tokens = sum(w["nll"] for w in scored), sum(w["tokens"] for w in scored)
    if tokens:
        result["perplexity_full_windows"] = math.exp(total / tokens)
        result["tokens_full_windows"] = tokens
    if tail and len(tail) > 1:
        result["tail"] = {"tokens": len(tail) - 1, "nll": window_nll(model, tail)}
        total, tokens = total + result["tail"]["nll"], tokens + result["tail"]["tokens"]
    result["perplexity_with_tail"] = math.exp(total / tokens)
    result["tokens_with_tail"] = tokens
    return result


def save(name, value):
    path = FIXTURES / "default_model" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, separators=(",", ":")).replace('},{', '},\n{').replace('],"', '],\n"') + "\n")
    print(f"{path.relative_to(FIXTURES)}: {path.stat().st_size} bytes")


def main():
    path = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path)
    tokenizer = build_tokenizer(reader)
    model = build_model(path, reader)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    source = {"file": path.name, "sha256": digest}
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids

    with torch.no_grad():
        cases = []
        for name, text in PROMPTS.items():
            ids = encode(text)
            out, seconds, gaps = greedy(model, ids)
            cases.append({"name": name, "prompt": text, "prompt_ids": ids, "token_ids": out, "second_ids": seconds,
                          "gaps": gaps, "text": tokenizer.decode(out, skip_special_tokens=False)})
            print(f"{name}: smallest gap {min(gaps)}: {cases[-1]['text']!r}")
        save("greedy.json", {**source, "cases": cases})

        ids = encode(LOGITS_TEXT)[:LOGITS_ROWS]
        logits = model(torch.tensor([ids])).logits[0].numpy()
        columns = np.sort(np.random.default_rng(7).choice(logits.shape[1], LOGITS_COLUMNS, replace=False))
        save("logits.json", {
            **source, "ids": ids, "columns": columns.tolist(), "std": float(logits.std()),
            "argmax": logits.argmax(1).tolist(), "max": [round(float(v), 5) for v in logits.max(1)],
            "rows": [[round(float(v), 4) for v in row[columns]] for row in logits]})

        texts = []
        for text_path in sorted((FIXTURES / "text").glob("*.txt")):
            ids = encode(text_path.read_text())
            assert tokenizer.decode(ids) == text_path.read_text()
            texts.append({"text": text_path.name, "ids": ids,
                          "scores": [perplexity(model, ids, 1024), perplexity(model, ids, 256)]})
            print(text_path.name, len(ids), "tokens", [s["perplexity_with_tail"] for s in texts[-1]["scores"]])
        save("perplexity.json", {**source, "texts": texts})


if __name__ == "__main__":
    main()
