#!/usr/bin/env python3
"""What ranks keep: each its part of the weights, and at most what it planned."""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import ranks
import server as fixture

# Much cache beside few weights, so that little work fills what is planned.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
          "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 512, "max_position_embeddings": 256,
          "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "bos_token_id": 1, "eos_token_id": 2}
SEQUENCES, LENGTH = 24, 256
WATCHED = """
import os, resource, subprocess, sys
status = subprocess.run(sys.argv[2:]).returncode
with open(sys.argv[1] + os.environ["OMPI_COMM_WORLD_RANK"], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024))
sys.exit(status)
"""
UNITS = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10}


def mib(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def holes(path, c):
    """A safetensors file that has the shapes of a Llama and no weights: it takes no room. Its bytes."""
    hidden, width, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    shapes = {"model.embed_tokens": [c["vocab_size"], hidden], "model.norm": [hidden]}
    if not c["tie_word_embeddings"]:
        shapes["lm_head"] = [c["vocab_size"], hidden]
    for i in range(c["num_hidden_layers"]):
        layer = {"self_attn.q_proj": [q, hidden], "self_attn.k_proj": [kv, hidden], "self_attn.v_proj": [kv, hidden],
                 "self_attn.o_proj": [hidden, q], "mlp.gate_proj": [width, hidden], "mlp.up_proj": [width, hidden],
                 "mlp.down_proj": [hidden, width], "input_layernorm": [hidden], "post_attention_layernorm": [hidden]}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    tensors, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        tensors[name + ".weight"] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    header = json.dumps(tensors).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    return end


@unittest.skipIf(ranks.missing(), ranks.missing())
class RankMemoryTest(unittest.TestCase):
    def inspect(self, *words):
        done = subprocess.run([fixture.binary(), "inspect", *words, "--device", "cpu"], check=True, capture_output=True, text=True)
        return done.stdout.split("\ncpu ")[1]  # other devices come before it

    def test_each_has_its_part_of_the_weights(self):
        file = pathlib.Path(fixture.default_model()).stat().st_size / 2**20
        for count in (2, 4):
            shares = [mib(found) for found in re.findall(r"weights ([\d.]+ \w+) \+", self.inspect("-m", fixture.default_model(), "--tp", str(count)))]
            self.assertEqual(len(shares), count)
            self.assertLessEqual(max(shares), file / count * 1.05)

    def check_stages(self, whole, cuts, *words):
        """`cuts`: --tp and --pp."""
        for tp, pp in cuts:
            with self.subTest(tp=tp, pp=pp):
                hosts = ",".join(f"studio-{i}:1:400" for i in range(tp * pp))
                shown = self.inspect(*words, "--tp", str(tp), "--pp", str(pp), "--hosts", hosts)
                shares = [mib(found) for found in re.findall(r"weights ([\d.]+ \w+) \+", shown)]
                self.assertEqual(len(shares), tp * pp)
                self.assertLessEqual(max(shares) / whole, 1 / (tp * pp) + 0.05)

    def test_stages_have_their_part_of_the_weights(self):
        """Of the default model, whose head is its embedding and weighs as much as 14 of 30 layers, and of shapes like TinyLlama's, Llama
        8B's and, tied, Qwen3 4B's."""
        model = fixture.default_model()
        self.check_stages(pathlib.Path(model).stat().st_size / 2**20, [(1, 2), (1, 3), (2, 2)], "-m", model)
        shapes = {"tinyllama": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                                    head_dim=64, vocab_size=32000),
                  "llama": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                                head_dim=128, vocab_size=128256),
                  "qwen3": dict(hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
                                head_dim=128, vocab_size=151936, tie_word_embeddings=True)}
        for name, shape in shapes.items():
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                config = {**CONFIG, **shape}
                pathlib.Path(folder, "config.json").write_text(json.dumps(config))
                whole = holes(pathlib.Path(folder, "model.safetensors"), config) / 2**20
                self.check_stages(whole, [(1, 2), (1, 3), (1, 4)], "-m", folder)

    def peaks(self, folder, *words):
        """MiB of each of two ranks; whether they ended well."""
        for _ in range(5):
            done = subprocess.run([*ranks.MPIRUN, "-n", "2", sys.executable, "-c", WATCHED, f"{folder}/peak", fixture.binary(), *words, "-m", folder, "-t", "1"],
                                  capture_output=True, text=True, timeout=240, check=False)
            if "has not answered for" not in done.stderr:  # which a rank on a very busy machine may not
                break
        return done, [float(pathlib.Path(folder, f"peak{rank}").read_text()) for rank in (0, 1)]

    def test_the_peak_is_the_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
            options = ["--load-format", "dummy", "--kv-blocks", str(SEQUENCES * LENGTH // 16), "--max-step-tokens", "256", "--tp", "2"]
            # One that has met the others and loaded nothing.
            done, bare = self.peaks(folder, "run", "--ids", "1", "-c", "99999", *options)
            self.assertNotEqual(done.returncode, 0)
            done, full = self.peaks(folder, "bench", "--batch", str(SEQUENCES), "--prompt-len", str(LENGTH - 8), "--gen-len", "8", "--json", *options)
            self.assertEqual(done.returncode, 0, done.stderr)
            full[0] = json.loads(done.stdout)["model_peak_rss_mb"] / 1.048576  # before it measures the machine
            plans = [mib(found) for found in re.findall(r"= ([\d.]+ \w+)", self.inspect("-m", folder, *options))]
            self.assertEqual(len(plans), 2)
            for rank in (0, 1):
                share = (full[rank] - bare[rank]) / plans[rank]
                self.assertLessEqual(share, 1.03, f"rank {rank}")
                self.assertGreater(share, 0.8, f"rank {rank}: this does not fill what was planned")

    def test_an_embedding_that_stays_in_its_file_takes_no_memory(self):
        """Of 32 MiB prompts read rows everywhere, or at the beginning."""
        with tempfile.TemporaryDirectory() as folder:
            config = {**CONFIG, "vocab_size": 131072, "tie_word_embeddings": True}
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            holes(pathlib.Path(folder, "model.safetensors"), config)
            most = []
            for apart in (1, 541):
                prompt = ",".join(str(i * apart) for i in range(240))
                done, (first, _) = self.peaks(folder, "run", "--ids", prompt, "-n", "2", "--kv-blocks", "16", "--max-step-tokens", "16", "--pp", "2")
                self.assertEqual(done.returncode, 0, done.stderr)
                most.append(first)
            self.assertLess(most[1] - most[0], 4)


if __name__ == "__main__":
    fixture.main()
