"""A Ray cluster of two hosts, and `vllm serve` across them, asked by the openai client: tokens are those of one process.
INGOT_SOAK=1: every kind of model, ranks that share layers and stages, software Metal, with both versions of vLLM."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from models import FIXTURES, export_default_model, native_tokens, tiny_prompts

sys.path.append(str(Path(__file__).parents[1] / "server"))
import hosts  # noqa: E402

SOAK = bool(os.environ.get("INGOT_SOAK"))
IS_NEWEST = version("vllm").startswith("0.32.")
pytestmark = pytest.mark.skipif(not (IS_NEWEST or SOAK), reason="tried with vLLM 0.32.0; INGOT_SOAK=1 tries it with both")
DENSE, EXPERTS, QUANTIZED, WINDOWED = "llama-bf16-llama3", "qwen3moe-bf16", "llama-awq-g64", "mistral-bf16-window"
DEFAULT, TINYLLAMA = "the default model", "TinyLlama's shapes"
KINDS = {"dense": DENSE, "experts": EXPERTS, "quantized": QUANTIZED, "windowed": WINDOWED}
# --tensor-parallel-size, --pipeline-parallel-size
CUTS = {"by two": (2, 1), "in stages": (1, 2), "by four": (4, 1), "in three stages": (1, 3), "two by two": (2, 2)}


def models_for(tp, device):
    """Tiny ones, and on the CPU a large one, of which the default model has heads that do not divide."""
    large = DEFAULT if tp == 1 else TINYLLAMA
    return {**KINDS, large: large} if device == "cpu" else KINDS


# (model, --tensor-parallel-size, --pipeline-parallel-size, device), by what one cluster serves after the other.
CASES = {"dense by two": (DENSE, 2, 1, "cpu")}
if SOAK:
    CASES = {
        f"{kind} {cut}, {device}": (model, tp, pp, device)
        for device in ("cpu", "metal") for cut, (tp, pp) in CUTS.items() for kind, model in models_for(tp, device).items()
    }  # fmt: skip
BIN = Path(sys.executable).parent
NEW = {"cpu": 16, "metal": 4}  # software Metal takes seconds for one
ASKS = [{"temperature": 0}, {"temperature": 1.0, "seed": 11, "top_p": 0.95}]  # vLLM does not know what a model's makers advise

# On the first host: waits for the server, asks, prints what was answered.
CLIENT = """
import json, sys, time, urllib.request, openai
url, asks, prompts, new = json.loads(sys.argv[1])
for _ in range(2400):
    try:
        urllib.request.urlopen(url + "/health", timeout=5)
        break
    except OSError:
        time.sleep(0.25)
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=120)
ask = lambda prompt, params: client.completions.create(
    model="tiny", prompt=prompt, max_tokens=new, extra_body={"ignore_eos": True, "return_token_ids": True}, **params).choices[0].token_ids
print(json.dumps([[ask(prompt, params) for prompt in prompts] for params in asks]))
"""


def with_layers(model, folder, layers):
    """A copy of the tiny model with its last layer again and again."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, folder)
    config = json.loads((model / "config.json").read_text())
    weights = load_file(model / "model.safetensors")
    last = f"model.layers.{config['num_hidden_layers'] - 1}."
    for layer in range(config["num_hidden_layers"], layers):
        weights |= {name.replace(last, f"model.layers.{layer}."): tensor.clone() for name, tensor in weights.items() if name.startswith(last)}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": max(layers, config["num_hidden_layers"])}))
    return folder


def with_words(model, folder):
    """A copy of the tiny model with words for its tokens: the server wants a tokenizer."""
    shutil.copytree(model, folder)
    vocab = {f"w{i}": i for i in range(json.loads((model / "config.json").read_text())["vocab_size"])}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "w0"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "w0"}')
    return folder


def has_engine(pid: int) -> bool:
    try:
        return "/site-packages/ingot/" in Path(f"/proc/{pid}/maps").read_text()
    except OSError:  # it has ended
        return False


def tinyllama(folder):
    """Random weights in the shapes of TinyLlama, whose heads divide as the default model's do not; two layers of it."""
    import numpy as np
    from safetensors.numpy import save_file

    config = json.loads((FIXTURES.parent / "configs" / "TinyLlama-1.1B" / "config.json").read_text()) | {"num_hidden_layers": 2}
    hidden, width, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    random = np.random.default_rng(1)
    matrix = lambda rows, cols: (random.standard_normal((rows, cols), np.float32) * cols**-0.5).astype(np.float16)  # noqa: E731
    weights = {"model.embed_tokens.weight": matrix(vocab, hidden), "lm_head.weight": matrix(vocab, hidden)}
    weights["model.norm.weight"] = np.ones(hidden, np.float16)
    for layer in range(2):
        name = f"model.layers.{layer}."
        for part, rows, cols in (
            ("self_attn.q_proj", hidden, hidden), ("self_attn.k_proj", kv, hidden), ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden), ("mlp.gate_proj", width, hidden), ("mlp.up_proj", width, hidden),
            ("mlp.down_proj", hidden, width),
        ):  # fmt: skip
            weights[f"{name}{part}.weight"] = matrix(rows, cols)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{name}{norm}.weight"] = np.ones(hidden, np.float16)
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config | {"torch_dtype": "float16"}))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model's folder by its name and the layers that it must have, made once."""
    made = {}

    def folder(name, layers):
        if (name, layers) not in made:
            place = tmp_path_factory.mktemp("models")
            if name == DEFAULT:
                made[name, layers] = Path(export_default_model(place / "default"))
            elif name == TINYLLAMA:
                made[name, layers] = with_words(tinyllama(place / "shapes"), place / "tiny")
            else:
                made[name, layers] = with_words(with_layers(FIXTURES / name, place / "layers", layers), place / "tiny")
        return made[name, layers]

    return folder


class Cluster:
    """A Ray cluster of two hosts, each of which lends so many ranks: a GPU of Ray's is one."""

    def __init__(self, ranks, device):
        self.lends = (ranks, device)
        self.work = tempfile.TemporaryDirectory(prefix="hosts-")
        self.hosts = hosts.Hosts()
        self.hosts.__enter__()
        self.logs, self.served = {}, 0
        first, second = (self.hosts.address(host) for host in (1, 2))
        self.variables = {
            **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ADDRESS": f"{first}:6379", "VLLM_LOGGING_LEVEL": "INFO",
            "INGOT_DEVICE": device,
        }  # fmt: skip
        # It gives a node 30 s to start, which a busy machine may need twice.
        again = ["sh", "-c", 'until "$0" "$@"; do sleep 2; done', BIN / "ray", "start"]
        node = ["--num-gpus", ranks, "--num-cpus", ranks, "--object-store-memory", 80 << 20, "--block"]
        self.start("head", 1, *again, "--head", "--node-ip-address", first, "--port", 6379, "--include-dashboard", "false",
                   "--temp-dir", f"{self.work.name}/ray", *node)  # fmt: skip
        self.start("node", 2, *again, "--address", f"{first}:6379", "--node-ip-address", second, *node)

    def start(self, name, host, *words):
        self.logs[name] = Path(self.work.name) / f"{name}.log"
        with self.logs[name].open("wb") as log:
            return subprocess.Popen(
                [*self.hosts.inside(host), *map(str, words)], env={**self.variables, "VLLM_HOST_IP": self.hosts.address(host)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def said(self):
        return "\n".join(f"== {name}\n{path.read_text(errors='replace')[-5000:]}" for name, path in self.logs.items())

    def ask(self, folder, tp, pp, prompts, new):
        """What the model answers, served across the hosts; a port of its own each time."""
        self.served += 1
        port = 8000 + self.served
        server = self.start(
            "serve", 1, BIN / "vllm", "serve", folder, "--served-model-name", "tiny", "--host", self.hosts.address(1), "--port", port,
            "--tensor-parallel-size", tp, "--pipeline-parallel-size", pp, "--distributed-executor-backend", "ray",
            "--max-model-len", 192, "--num-gpu-blocks-override", 60,
        )  # fmt: skip
        try:
            ask = json.dumps([f"http://{self.hosts.address(1)}:{port}", ASKS, prompts, new])
            client = subprocess.Popen([*self.hosts.inside(1), sys.executable, "-c", CLIENT, ask], stdout=subprocess.PIPE, text=True)
            while client.poll() is None and server.poll() is None:  # a server that has ended is not waited for
                time.sleep(0.1)
            assert client.poll() == 0 and server.poll() is None, self.said()
            assert any(has_engine(pid) for pid in self.hosts.pids(2)), f"the second host has no rank\n{self.said()}"
            return json.loads(client.stdout.read())
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()

    def end(self):
        self.hosts.__exit__()
        self.work.cleanup()


@pytest.fixture(scope="module")
def clusters():
    """A cluster by what it lends; one at a time."""
    if reason := hosts.missing():
        pytest.skip(reason)
    if not find_spec("ray"):
        pytest.skip("there is no Ray in this environment")
    running = []

    def cluster(ranks, device):
        if running and running[0].lends != (ranks, device):
            running.pop().end()
        if not running:
            running.append(Cluster(ranks, device))
        return running[0]

    yield cluster
    for left in running:
        left.end()


@pytest.mark.parametrize("name", CASES)
def test_a_ray_cluster_of_two_hosts(name, clusters, folders):
    model, tp, pp, device = CASES[name]
    folder, prompts = folders(model, max(pp, 2)), tiny_prompts()[:2]
    if model == WINDOWED and device == "metal":  # the whole prompt is many rows
        prompts = [prompt[:40] for prompt in prompts]
    start = time.monotonic()
    answers = clusters(-(-tp * pp // 2), device).ask(folder, tp, pp, prompts, NEW[device])
    print(f"{name}: {time.monotonic() - start:.1f} s")
    assert answers == [native_tokens(str(folder), prompts, NEW[device], device=device, **params) for params in ASKS]
