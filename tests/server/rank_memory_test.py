#!/usr/bin/env python3
"""What ranks keep: each its part of the weights, and at most what it planned."""

import json
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

    def test_stages_of_models_whose_head_is_not_their_embedding(self):
        """Of shapes like TinyLlama's and Llama 8B's; a tied head is on two stages, for which this cannot hold."""
        shapes = {"tinyllama": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4,
                                    head_dim=64, vocab_size=32000),
                  "llama": dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                                head_dim=128, vocab_size=128256)}
        for name, shape in shapes.items():
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "config.json").write_text(json.dumps({**CONFIG, **shape}))

                def shares(stages):
                    hosts = ",".join(f"studio-{i}:1:400" for i in range(stages))
                    shown = self.inspect("-m", folder, "--load-format", "dummy", "--pp", str(stages), "--hosts", hosts)
                    return [mib(found) for found in re.findall(r"weights ([\d.]+ \w+) \+", shown)]

                whole, = shares(1)
                for stages in (2, 3, 4):
                    with self.subTest(model=name, stages=stages):
                        self.assertEqual(len(shares(stages)), stages)
                        self.assertLessEqual(max(shares(stages)) / whole, 1 / stages + 0.05)

    def test_the_peak_is_the_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
            peak = pathlib.Path(folder, "peak")
            options = ["-m", folder, "--load-format", "dummy", "--kv-blocks", str(SEQUENCES * LENGTH // 16), "--max-step-tokens", "256", "--tp", "2"]

            def peaks(*words):
                done = subprocess.run([*ranks.MPIRUN, "-n", "2", sys.executable, "-c", WATCHED, str(peak), fixture.binary(), *words, *options, "-t", "1"],
                                      capture_output=True, text=True, timeout=240, check=False)
                return done, [float(pathlib.Path(f"{peak}{rank}").read_text()) for rank in (0, 1)]

            # One that has met the others and loaded nothing.
            done, bare = peaks("run", "--ids", "1", "-c", "99999")
            self.assertNotEqual(done.returncode, 0)
            done, full = peaks("bench", "--batch", str(SEQUENCES), "--prompt-len", str(LENGTH - 8), "--gen-len", "8", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            full[0] = json.loads(done.stdout)["model_peak_rss_mb"] / 1.048576  # before it measures the machine
            plans = [mib(found) for found in re.findall(r"= ([\d.]+ \w+)", self.inspect(*options))]
            self.assertEqual(len(plans), 2)
            for rank in (0, 1):
                share = (full[rank] - bare[rank]) / plans[rank]
                self.assertLessEqual(share, 1.03, f"rank {rank}")
                self.assertGreater(share, 0.8, f"rank {rank}: this does not fill what was planned")


if __name__ == "__main__":
    fixture.main()
