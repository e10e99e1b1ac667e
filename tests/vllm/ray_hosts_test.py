"""A Ray cluster of two hosts, and `vllm serve` across them, asked by the openai client: tokens are those of one process.
INGOT_SOAK=1: every kind of model, ranks that share layers and stages, with both versions of vLLM."""

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
from models import FIXTURES, native_tokens, tiny_prompts

sys.path.append(str(Path(__file__).parents[1] / "server"))
import hosts  # noqa: E402

IS_NEWEST = version("vllm").startswith("0.32.")
pytestmark = pytest.mark.skipif(
    not (IS_NEWEST or os.environ.get("INGOT_SOAK")), reason="tried with vLLM 0.32.0; INGOT_SOAK=1 tries it with both"
)
TP2, PP2 = "--tensor-parallel-size", "--pipeline-parallel-size"
CASES = {"dense": ("llama-bf16-llama3", TP2)}
if os.environ.get("INGOT_SOAK"):
    CASES |= {"stages": ("llama-bf16-llama3", PP2), "experts": ("qwen3moe-bf16", TP2), "quantized": ("llama-awq-g64", TP2),
              "windowed stages": ("mistral-bf16-window", PP2)}
BIN = Path(sys.executable).parent
NEW = 16
ASKS = [{"temperature": 0}, {"temperature": 1.0, "seed": 11}]

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
    model="tiny", prompt=prompt, max_tokens=new, extra_body={"ignore_eos": True}, **params).choices[0].text
print(json.dumps([[ask(prompt, params) for prompt in prompts] for params in asks]))
"""


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


@pytest.mark.parametrize("name", CASES)
def test_a_ray_cluster_of_two_hosts(name, tmp_path):
    model, cut = FIXTURES / CASES[name][0], CASES[name][1]
    folder = with_words(model, tmp_path / "tiny")
    if reason := hosts.missing():
        pytest.skip(reason)
    if not find_spec("ray"):
        pytest.skip("there is no Ray in this environment")
    prompts = tiny_prompts()[:2]
    with tempfile.TemporaryDirectory(prefix="hosts-") as work, hosts.Hosts() as two:
        variables = {
            **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ADDRESS": f"{two.address(1)}:6379", "VLLM_LOGGING_LEVEL": "INFO",
        }
        logs = {}

        def start(name, host, *words):
            logs[name] = Path(work) / f"{name}.log"
            with logs[name].open("wb") as log:
                return subprocess.Popen(
                    [*two.inside(host), *map(str, words)], env={**variables, "VLLM_HOST_IP": two.address(host)},
                    stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                )

        # It gives a node 30 s to start, which a busy machine may need twice.
        again = ["sh", "-c", 'until "$0" "$@"; do sleep 2; done', BIN / "ray", "start"]
        # A GPU of Ray's is a rank that a host lends.
        node = ["--num-gpus", "1", "--num-cpus", "1", "--object-store-memory", str(80 << 20), "--block"]
        start("head", 1, *again, "--head", "--node-ip-address", two.address(1), "--port", "6379",
              "--include-dashboard", "false", "--temp-dir", f"{work}/ray", *node)
        start("node", 2, *again, "--address", f"{two.address(1)}:6379", "--node-ip-address", two.address(2), *node)
        server = start("serve", 1, BIN / "vllm", "serve", folder, "--served-model-name", "tiny", "--host", two.address(1),
                       "--port", "8000", cut, "2", "--distributed-executor-backend", "ray",
                       "--num-gpu-blocks-override", "60")
        ask = json.dumps([f"http://{two.address(1)}:8000", ASKS, prompts, NEW])
        client = subprocess.Popen([*two.inside(1), sys.executable, "-c", CLIENT, ask], stdout=subprocess.PIPE, text=True)
        while client.poll() is None and server.poll() is None:  # a server that has ended is not waited for
            time.sleep(0.1)
        said = "\n".join(f"== {name}\n{path.read_text(errors='replace')[-5000:]}" for name, path in logs.items())
        assert client.poll() == 0 and server.poll() is None, said
        assert any(has_engine(pid) for pid in two.pids(2)), f"the second host has no rank\n{said}"
        answers = [[[int(word[1:]) for word in text.split()] for text in texts] for texts in json.loads(client.stdout.read())]
        assert answers == [native_tokens(str(model), prompts, NEW, **params) for params in ASKS]
