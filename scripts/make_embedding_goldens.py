#!/usr/bin/env python3
"""Writes tests/fixtures/models/qwen3-embedding-bf16: a tiny random checkpoint as Qwen3-Embedding's are laid out (tensors
without "model.", no head, the files of sentence-transformers), with the vectors that transformers makes of some prompts.

The weights are those of qwen3-bf16. embeddings.json has token ids and, for each kind of pooling, one vector a prompt: the
last hidden state in fp32, pooled and normalised. Vectors of neighbouring kinds must differ by more than ten times the
tolerance of the tests, or this script fails.

  pip install torch transformers safetensors
  scripts/make_embedding_goldens.py
"""
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel

MODELS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "models"
TOLERANCE = 0.005
MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def main():
    source, target = MODELS / "qwen3-bf16", MODELS / "qwen3-embedding-bf16"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    shutil.copy(source / "config.json", target / "config.json")
    prefix = "model."
    weights = {name[len(prefix):]: value for name, value in load_file(source / "model.safetensors").items()
               if name.startswith(prefix)}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    write_json(target / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
                                         for i, (path, name) in enumerate(MODULES)])
    write_json(target / "1_Pooling" / "config.json", {
        "word_embedding_dimension": 48, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True})
    write_json(target / "config_sentence_transformers.json", {
        "prompts": {"query": "Instruct: find it\nQuery:", "document": ""}, "default_prompt_name": None,
        "similarity_fn_name": "cosine"})

    config = AutoConfig.from_pretrained(target)
    model = AutoModel.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    model.load_state_dict({name: value.float() for name, value in weights.items()})
    generator = torch.Generator().manual_seed(7)
    prompts = [torch.randint(0, config.vocab_size, (n,), generator=generator).tolist() for n in (1, 5, 23, 48)]
    result = {"prompts": prompts, "last": [], "mean": [], "cls": []}
    for ids in prompts:
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0].float()
        for kind, vector in (("last", states[-1]), ("mean", states.mean(0)), ("cls", states[0])):
            result[kind].append(torch.nn.functional.normalize(vector, dim=0).tolist())
    for i, ids in enumerate(prompts):
        for a, b in (("last", "mean"), ("mean", "cls"), ("last", "cls")):
            moved = max(abs(x - y) for x, y in zip(result[a][i], result[b][i]))
            assert len(ids) == 1 or moved > 10 * TOLERANCE, (a, b, moved)
    (target / "embeddings.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
