#!/usr/bin/env python3
"""Ranks on two hosts, which are network namespaces with addresses of their own: mpirun across them gives the tokens of one process, and
what is served there answers the openai client. INGOT_SOAK=1: every model in every cut, the tiny ones on software Metal too."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import hosts
import ranks
import server as fixture

MODELS = {"dense": "llama-f16-untied-sharded", "experts": "qwen3moe-bf16", "quantized": "qwen3-wide-gguf-q5_0/model.gguf",
          "windowed": "mistral-bf16-window", "default": None}
# The same kinds with layers enough for three stages.
DEEP = {"deep": "smollm3-bf16", "deep experts": "qwen3moe-sparse-bf16", "deep windowed": "gemma3-bf16", "deep quantized": "gemma3-gguf-q8_0/model.gguf"}
# (model, device, --tp, --pp)
SAMPLE = [("experts", "cpu", 2, 1), ("windowed", "cpu", 1, 2)]
ALL = [(model, device, *cut) for model in MODELS for device in ("cpu", "metal") if device == "cpu" or MODELS[model]
       for cut in ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2))]
ALL += [("default", "cpu", 1, 3)] + [(model, device, 1, 3) for model in DEEP for device in ("cpu", "metal")]
TOKENS = {"cpu": 24, "metal": 4}  # software Metal takes seconds for one
WAYS = [["--temperature", "0"], ["--temperature", "0.9", "--seed", "7"]]
CLIENT = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0, timeout=120)
for sampling in ({"temperature": 0}, {"temperature": 0.9, "seed": 7}):
    answer = client.completions.create(model="test", prompt="Once upon a time", max_tokens=24, **sampling)
    print(repr(answer.choices[0].text))
"""
MISSING = hosts.missing("mpirun")


class HostServer(ranks.RankServer):
    """`ingot serve` of two ranks, one on each host."""

    def __init__(self, between, *args, **options):
        super().__init__(*args, host=between.address(1), **options)
        self.mpirun = between.mpirun(2)


@unittest.skipIf(MISSING, MISSING)
class HostsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = hosts.Hosts()
        cls.addClassCleanup(cls.hosts.__exit__)
        cls.hosts.__enter__()

    def tokens(self, launcher, model, device, tp, pp, way):
        name = {**MODELS, **DEEP}[model]
        path = fixture.default_model() if name is None else fixture.ROOT / "tests" / "fixtures" / "models" / name
        command = [*launcher, str(fixture.binary()), "run", "-m", str(path), "--ids", "5,17,100,3,42,7", "-n", str(TOKENS[device]), "--ignore-eos", "--json",
                   "-c", "128", "-t", "1", "--device", device, "--tp", str(tp), "--pp", str(pp), *way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120 if device == "cpu" else 600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["token_ids"]

    def test_tokens_are_those_of_one_process(self):
        alone = functools.cache(lambda model, device, seeded: self.tokens([], model, device, 1, 1, WAYS[seeded]))
        for model, device, tp, pp in ALL if fixture.SOAK else SAMPLE:
            for seeded in (0, 1) if fixture.SOAK else (1,):
                with self.subTest(model=model, device=device, tp=tp, pp=pp, seeded=seeded):
                    expected = alone(model, device, seeded)
                    self.assertEqual(len(expected), TOKENS[device])
                    self.assertEqual(self.tokens(self.hosts.mpirun(tp * pp), model, device, tp, pp, WAYS[seeded]), expected)

    def ask(self, server, host=None):
        inside = self.hosts.inside(host) if host else []
        done = subprocess.run([*inside, sys.executable, "-c", CLIENT, server.url], capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_openai_client_is_answered(self):
        with fixture.Server("--served-model-name", "test", "--threads", 1, "-c", 256) as alone:
            expected = self.ask(alone)
        server = HostServer(self.hosts, "--served-model-name", "test", "-c", 256)
        try:
            server.start()
            self.assertEqual(self.ask(server, host=2), expected)
            self.assertEqual(len(expected.splitlines()), 2)
        finally:
            server.end_all()

    def test_what_a_stopped_test_leaves_is_removed(self):
        """Its namespaces, and what runs in them."""
        script = "import hosts, os, subprocess; h = hosts.Hosts().__enter__(); quiet = subprocess.DEVNULL; " \
                 "print(h.prefix, subprocess.Popen([*h.inside(1), 'sleep', '600'], stdout=quiet, stderr=quiet).pid, flush=True); " \
                 "subprocess.run(['ip', 'netns', 'list']); os._exit(0)"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", script], cwd=pathlib.Path(__file__).parent, env={**os.environ, "TMPDIR": folder},
                                  capture_output=True, text=True, timeout=60, check=True)
        (prefix, pid), *listed = [line.split() for line in done.stdout.splitlines()]
        self.assertIn(prefix + "1", [line[0] for line in listed], done.stderr)
        hosts.remove_left_over()
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        self.assertNotIn(prefix, listed)
        self.assertIn(self.hosts.prefix, listed, "those of a test that runs stay")
        self.assertEqual(ranks.left_of([int(pid)], 10), [])

    def test_the_rank_that_lacks_memory_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            little, start = pathlib.Path(folder, "meminfo"), pathlib.Path(folder, "start.sh")
            little.write_text("MemTotal: 400000 kB\nMemAvailable: 300000 kB\n")
            start.write_text('[ "$OMPI_COMM_WORLD_RANK" != "$POOR" ] || mount --bind "$1" /proc/meminfo\nshift\nexec "$@"\n')
            for poor in (0, 1):
                done = subprocess.run([*self.hosts.mpirun(2), "-x", f"POOR={poor}", "unshare", "--mount", "sh", str(start), str(little),
                                       str(fixture.binary()), "run", "-m", fixture.default_model(), "--ids", "1,2", "--kv-blocks", "40000",
                                       "-t", "1", "--tp", "2"], capture_output=True, text=True, timeout=120, check=False)
                said = [line for line in done.stderr.splitlines() if line.startswith("ingot: ")]
                self.assertNotEqual(done.returncode, 0)
                self.assertEqual(len(said), 1, done.stderr)
                self.assertRegex(said[0], rf"^ingot: rank {poor} on studio-{poor + 1}: the model does not fit, [\d.]+ [KMG]iB are lacking: .* 293.0 MiB available;")


if __name__ == "__main__":
    fixture.main()
