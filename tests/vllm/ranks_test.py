"""vLLM's own workers as ranks that share a model, or as replicas of it: tokens are those of one process."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import ingot
import openai
import pytest
from models import FIXTURES, native_tokens, tiny_prompts
from vllm_apple import ranks
from vllm_apple.declined import Declined
from vllm_server import vllm_serve

SOAK = bool(os.environ.get("INGOT_SOAK"))
IS_NEWEST = version("vllm").startswith("0.32.")
# Starting vLLM takes most of the time, so each version has some of these in the suite; INGOT_SOAK=1: all in both.
WITH_REPLICAS = SOAK or not IS_NEWEST

# Nothing shared, then much of it; 30 blocks do not hold them side by side, so some requests are preempted.
PROMPTS = [[3 + i] * 40 + list(range(5, 65)) for i in range(6)] + tiny_prompts()[:3]
ASKS = [
    {"prompts": PROMPTS, "new": 24, "params": {}},
    {"prompts": PROMPTS[-3:], "new": 24, "params": dict(temperature=1.0, seed=7, top_p=0.9, repetition_penalty=1.2)},
]


def case(name: str, kill=None, **options) -> dict:
    options = {"distributed_executor_backend": "mp", "num_gpu_blocks_override": 30, **options}
    return {"model": str(FIXTURES / name), "options": options, "asks": ASKS, "kill": kill}


TINY, EXPERTS, WINDOWED, DEEP = "llama-bf16-llama3", "qwen3moe-bf16", "mistral-bf16-window", "smollm3-bf16"
QUANTIZED = "llama-awq-g64"
TP2, TP4, PP2, PP3 = dict(tensor_parallel_size=2), dict(tensor_parallel_size=4), dict(pipeline_parallel_size=2), dict(pipeline_parallel_size=3)
RAY = dict(distributed_executor_backend="ray")
# Where a rank is killed vLLM's engine has a process of its own, which is for those that come first to say.
ALL = {
    "async, then rank 1 is killed": case(WINDOWED, kill=1, async_scheduling=True, **TP2),
    "sync, then rank 0 is killed": case(TINY, kill=0, async_scheduling=False, **TP2),
    "sync": case(TINY, async_scheduling=False, **TP2),
    "stages": case(TINY, **PP2),
    "quantized": case(QUANTIZED, **TP2),
    "quantized stages": case("llama-gptq-g128-sym", **PP2),
    "wide": case("llama-bf16-wide", **TP2),
    "gemma": case("gemma3-bf16", **TP2),
    "experts": case(EXPERTS, **TP2),
    "stages of experts": case(EXPERTS, **PP2),
    "windowed stages": case(WINDOWED, **PP2),
    "four": case(TINY, **TP4),
    "quantized by four": case(QUANTIZED, **TP4),
    "experts by four": case(EXPERTS, **TP4),
    "windowed by four": case(WINDOWED, **TP4),
    "three stages": case(DEEP, **PP3),
    "three stages of gemma": case("gemma3-bf16", **PP3),
    "two by two": case(TINY, **TP2, **PP2),
    "experts two by two": case(EXPERTS, **TP2, **PP2),
    "ray": case(TINY, **TP2, **RAY),
    "stages of ray": case(WINDOWED, **PP2, **RAY),
}
SAMPLE = ["async, then rank 1 is killed", "sync", "stages"]
SAMPLE += ["experts by four", "stages of ray"] if IS_NEWEST else ["quantized", "three stages"]  # ray_hosts_test.py has Ray's tp
CASES = {name: each for name, each in ALL.items() if SOAK or name in SAMPLE}
if not find_spec("ray"):
    CASES = {name: each for name, each in CASES.items() if "ray" not in name}


@pytest.fixture(scope="module")
def results():
    """Of all cases, by one process: importing vLLM takes longer than running them."""
    lines = "".join(json.dumps(each) + "\n" for each in CASES.values())
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ranks_run.py")], input=lines, capture_output=True, text=True, timeout=2400 if SOAK else 800
    )
    print(done.stderr[-8000:])
    return dict(zip(CASES, map(json.loads, done.stdout.splitlines())))


@pytest.mark.parametrize("name", CASES)
def test_ranks(name, results):
    assert name in results, "it did not come so far: what vLLM said is above"
    got, model = results[name], CASES[name]["model"]
    print(f"{name}: vLLM started in {got['start_s']} s, {got['seconds']} s in all")
    assert got["tokens"] == [native_tokens(model, ask["prompts"], ask["new"], **ask["params"]) for ask in ASKS]
    assert got["preemptions"] > 0
    if CASES[name]["kill"] is not None:
        print(got["killed"])
        assert got["killed"]["told"] and got["killed"]["seconds"] < 30, "whoever waits is told"  # 5, but machines are busy
        assert got["killed"]["left"] == 0, "a rank that is left alone ends"


@pytest.mark.skipif(not WITH_REPLICAS, reason="replicas are tried with vLLM 0.12.0; INGOT_SOAK=1 tries them with both")
def test_replicas(default_folder):
    """Two engines behind one server, which sends requests to either."""
    prompts = [f"{i}. The three primary colours are" for i in range(8)]
    expected = [c.text for c in ingot.LLM(device="cpu", max_model_len=512).generate(prompts, max_tokens=12, temperature=0)]
    options = ["--data-parallel-size", "2", "--served-model-name", "smol", "--max-model-len", "512"]
    with vllm_serve(default_folder, *options, "--num-gpu-blocks-override", "256") as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)
        with ThreadPoolExecutor(8) as pool:
            ask = lambda p: client.completions.create(model="smol", prompt=p, max_tokens=12, temperature=0)  # noqa: E731
            assert [answer.choices[0].text for answer in pool.map(ask, prompts)] == expected
        loaded = [line for line in server.log().splitlines() if "KV blocks of" in line]
        assert len(loaded) == 2, "both replicas have loaded the model"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("tensor_parallel_size", 3),
        ("decode_context_parallel_size", 2),
        ("enable_expert_parallel", True),
        ("distributed_executor_backend", "external_launcher"),
    ],
)
def test_what_is_declined(setting, value):
    usual = dict(tensor_parallel_size=1, pipeline_parallel_size=1, distributed_executor_backend="mp")
    ranks.check(SimpleNamespace(parallel_config=SimpleNamespace(**usual)))
    with pytest.raises(Declined, match=setting):
        ranks.check(SimpleNamespace(parallel_config=SimpleNamespace(**{**usual, setting: value})))


def test_ray_is_kept_from_nccl(monkeypatch):
    """By which vLLM 0.12 would connect stages; stages of Ray are in the suite of 0.32 only."""
    name = "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE"
    for backend, expected in (("mp", None), ("ray", "shm")):
        monkeypatch.delenv(name, raising=False)
        ranks.keep_ray_from_nccl(SimpleNamespace(parallel_config=SimpleNamespace(distributed_executor_backend=backend)))
        assert os.environ.get(name) == expected
    monkeypatch.setenv(name, "nccl")
    ranks.keep_ray_from_nccl(SimpleNamespace(parallel_config=SimpleNamespace(distributed_executor_backend="ray")))
    assert os.environ[name] == "nccl", "who says so has it"
