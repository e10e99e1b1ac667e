"""`vllm serve` with the default model, asked by the openai client; the load tool of vLLM; memory beside the native server."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import ingot
import openai
import pytest
from models import command
from vllm_server import Server, documents_command, free_port, vllm_serve

NAME = "smol"
LENGTH, BLOCKS = 2048, 1024
GIB = 1 << 30


@pytest.fixture(scope="module")
def server(default_folder):
    options = ["--served-model-name", NAME, "--max-model-len", LENGTH]
    if version("vllm").startswith("0.12."):
        start = documents_command(default_folder, *options)
    else:
        start = vllm_serve(default_folder, *options, "--num-gpu-blocks-override", BLOCKS)
    with start as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def native():
    return ingot.LLM(device="cpu", max_model_len=LENGTH)


PROMPT = "The three primary colours are"
MESSAGES = [{"role": "system", "content": "You answer in one sentence."}, {"role": "user", "content": "Why is the sky blue?"}]


def test_completions(client, native):
    answer = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=16, temperature=0)
    assert answer.choices[0].text == native.generate(PROMPT, max_tokens=16, temperature=0).text
    assert answer.usage.completion_tokens == 16


def test_completions_side_by_side(client, native):
    prompts = [f"{i}. {PROMPT}" for i in range(8)]
    expected = [c.text for c in native.generate(prompts, max_tokens=16, temperature=0)]
    with ThreadPoolExecutor(8) as pool:
        ask = lambda prompt: client.completions.create(model=NAME, prompt=prompt, max_tokens=16, temperature=0)
        assert [answer.choices[0].text for answer in pool.map(ask, prompts)] == expected


def test_chat(client, native):
    answer = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=24, temperature=0)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == native.chat(MESSAGES, max_tokens=24, temperature=0).text


def test_streaming(client):
    whole = client.chat.completions.create(model=NAME, messages=MESSAGES, max_tokens=24, temperature=0)
    stream = client.chat.completions.create(
        model=NAME, messages=MESSAGES, max_tokens=24, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 10
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_logprobs(client, native):
    answer = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=8, temperature=0, logprobs=3)
    own = native.generate(PROMPT, max_tokens=8, temperature=0, logprobs=3).outputs[0]
    found = answer.choices[0].logprobs
    assert found.token_logprobs == pytest.approx([entry[t].logprob for t, entry in zip(own.token_ids, own.logprobs)], abs=1e-4)
    for top, entry in zip(found.top_logprobs, own.logprobs):
        assert sorted(top.values(), reverse=True) == pytest.approx(sorted((e.logprob for e in entry.values()), reverse=True), abs=1e-4)
    chat = client.chat.completions.create(
        model=NAME, messages=MESSAGES, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2
    )
    for entry in chat.choices[0].logprobs.content:
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)  # greedy draws the most likely
        assert len(entry.top_logprobs) == 2


def test_prompt_logprobs(client, native):
    answer = client.completions.create(
        model=NAME, prompt=PROMPT, max_tokens=1, temperature=0, extra_body={"prompt_logprobs": 0}
    )
    own = native.generate(PROMPT, max_tokens=1, temperature=0, prompt_logprobs=0)
    scores = [entry[token].logprob for token, entry in zip(own.prompt_token_ids, own.prompt_logprobs) if entry]
    found = [next(iter(entry.values()))["logprob"] for entry in answer.choices[0].prompt_logprobs if entry]
    assert found == pytest.approx(scores[-len(found):], abs=1e-4)


SCHEMA = {
    "type": "object",
    "properties": {"animal": {"enum": ["fox", "dog", "owl"]}, "wild": {"type": "boolean"}},
    "required": ["animal", "wild"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_json_schema(client, temperature):
    answer = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": "Describe an animal as JSON."}],
        max_tokens=60,
        temperature=temperature,
        seed=3,
        response_format={"type": "json_schema", "json_schema": {"name": "animal", "schema": SCHEMA}},
    )
    value = json.loads(answer.choices[0].message.content)
    assert value["animal"] in ("fox", "dog", "owl") and isinstance(value["wild"], bool)


def test_two_choices(client):
    answer = client.completions.create(model=NAME, prompt=PROMPT, n=2, max_tokens=16, temperature=1.0, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].text != answer.choices[1].text


def test_seeds(client):
    ask = lambda seed: client.completions.create(
        model=NAME, prompt=PROMPT, max_tokens=16, temperature=1.0, seed=seed
    ).choices[0].text
    assert ask(11) == ask(11)
    assert len({ask(seed) for seed in (11, 12, 13)}) > 1


def test_penalties_and_biases(client):
    biased = client.completions.create(model=NAME, prompt=PROMPT, max_tokens=4, temperature=0, logit_bias={"28": 100})
    assert len(set(biased.choices[0].text)) == 1  # the one token, again and again
    freed = client.completions.create(
        model=NAME, prompt=PROMPT, max_tokens=4, temperature=0, logit_bias={"28": 100}, frequency_penalty=2.0,
        extra_body={"repetition_penalty": 2.0, "min_tokens": 2},
    )
    assert freed.usage.completion_tokens == 4


def test_a_failed_step_leaves_the_server_alive(client, server):
    bias = {str(i): 1 for i in range(49152)}  # sixteen of these do not fit into one step
    try:
        answer = client.completions.create(model=NAME, prompt=PROMPT, n=16, max_tokens=48, temperature=1, logit_bias=bias)
        aborted = [choice for choice in answer.choices if choice.finish_reason == "abort"]  # how 0.12.0 reports it
        assert aborted and all("step" in choice.stop_reason for choice in aborted)
    except openai.InternalServerError:  # how 0.32.0 does
        pass
    assert "a step failed, and its" in server.log()
    assert client.completions.create(model=NAME, prompt=PROMPT, max_tokens=4, temperature=0).usage.completion_tokens == 4


def test_vllm_bench_serve(server, default_folder):
    done = subprocess.run(
        [Path(sys.executable).parent / "vllm", "bench", "serve", "--backend", "openai", "--base-url", server.url, "--model", NAME,
         "--tokenizer", default_folder, "--dataset-name", "random", "--random-input-len", "48", "--random-output-len", "16",
         "--num-prompts", "24", "--max-concurrency", "8", "--ignore-eos"],
        capture_output=True, text=True, timeout=240,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"Successful requests:\s+24\b", done.stdout), done.stdout[-3000:]
    print(done.stdout[-2500:])


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="proportional set sizes are Linux's")
def test_memory_beside_the_native_server(client, server):
    """No copy of weights or KV in Python: what vLLM adds is vLLM itself."""
    port = free_port()
    native = Server(command(), "serve", "--host", "127.0.0.1", "--port", port, "--max-model-len", LENGTH, "--kv-blocks", BLOCKS,
                    "--device", "cpu", port=port)
    sizes = {}
    for name, running in (("native", native), ("vllm", server)):
        if running is native:
            running.__enter__()
        try:
            ask = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none")
            model = ask.models.list().data[0].id
            ask.completions.create(model=model, prompt=PROMPT, max_tokens=4)
            sizes[name] = running.pss_bytes()
        finally:
            if running is native:
                running.__exit__(None, None, None)
    print(f"proportional set size: native {sizes['native'] / GIB:.2f} GiB, vLLM {sizes['vllm'] / GIB:.2f} GiB")
    assert sizes["vllm"] <= sizes["native"] + 2.0e9
