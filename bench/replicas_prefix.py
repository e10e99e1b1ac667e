#!/usr/bin/env python3
"""How much of agents' conversations two replicas find in their prefix caches, behind a router that knows prefixes or sessions, and behind round robin.

    bench/replicas_prefix.py                            # on a tiny model: which replica has what does not depend on the model
    bench/replicas_prefix.py -m model.gguf --agents 12 --turns 10

Its Python has the packages of packaging/router/requirements.txt.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
import server as fixture  # noqa: E402
import tiny_model  # noqa: E402

BLOCK = 16  # tokens; a prefix is found in whole blocks
# Name -> the first word of route.sh, more of its words, whether clients name their session.
ROUTERS = {
    "SGLang's, round robin": ("prefix", ["--policy", "round_robin"], False),
    "SGLang's, by prefix": ("prefix", [], False),
    "vLLM's, round robin": ("session", ["--policy", "round_robin"], False),
    "vLLM's, by X-Session-ID": ("session", [], True),
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Router:
    """A router before some servers, on a free port."""

    def __init__(self, mode, servers, *options):
        self.port = free_port()
        self.command = [ROOT / "packaging" / "router" / "route.sh", mode, "--port", str(self.port), "--prometheus-port", str(free_port()), *options,
                        "--worker-urls", *(one.url for one in servers)]
        self.url = f"http://127.0.0.1:{self.port}"
        self.workers = len(servers)

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env={**os.environ, "PYTHON": sys.executable})
        end = time.monotonic() + 60
        while not self._ready():
            if time.monotonic() > end or self.process.poll() is not None:
                self.__exit__()
                raise RuntimeError(f"the router did not start:\n{self.log()[-3000:]}")
            time.sleep(0.1)
        return self

    def _ready(self):
        try:
            with urllib.request.urlopen(self.url + "/workers", timeout=5) as reply:
                return sum(worker["is_healthy"] for worker in json.load(reply)["workers"]) == self.workers
        except (OSError, urllib.error.HTTPError):
            return False

    def log(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def chat(url, messages, session, tokens):
    body = {"model": "ingot", "messages": messages, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    headers = {"Content-Type": "application/json", **({"X-Session-ID": session} if session else {})}
    with urllib.request.urlopen(urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), headers), timeout=120) as reply:
        return json.load(reply)


def converse(url, agents, turns, sessions, seed=1):
    """All agents at once, a turn each, in an order that changes. Returns (found tokens, tokens that a replica had seen, turns that found all of these, turns)."""
    draw = random.Random(seed)
    talks = [[{"role": "system", "content": f"{i * 7919} is the number of agent {i}; its rules follow. " * 6}] for i in range(agents)]
    seen, found, known, whole = [0] * agents, 0, 0, 0

    def turn(i, tokens):
        talks[i].append({"role": "user", "content": f"Tool {draw.randrange(100)} says: " + f"{draw.random()} " * 8})
        answer = chat(url, talks[i], f"agent-{i}" if sessions else None, tokens)
        talks[i].append({"role": "assistant", "content": answer["choices"][0]["message"]["content"].encode("ascii", "ignore").decode()})
        return i, answer["usage"]

    with concurrent.futures.ThreadPoolExecutor(agents) as pool:
        for number in range(turns):
            # First answers are long: a router that sends strangers to the replica with the least to do must see that they overlap.
            for i, usage in pool.map(turn, draw.sample(range(agents), agents), [32 if number else 256] * agents):
                if number > 0:
                    cached, before = usage["prompt_tokens_details"]["cached_tokens"], seen[i] // BLOCK * BLOCK
                    found += min(cached, before)
                    known += before
                    whole += cached >= before
                seen[i] = usage["prompt_tokens"]
    return found, known, whole, agents * (turns - 1)


def measure(name, model, agents, turns, threads=1):
    """(share of known tokens found, share of turns that found all, requests of each replica) with fresh servers."""
    mode, router_options, sessions = ROUTERS[name]
    options = ["--served-model-name", "ingot", "--threads", threads]
    with fixture.Server(*options, model=model) as one, fixture.Server(*options, model=model) as two:
        with Router(mode, [one, two], *router_options) as router:
            found, known, whole, all_turns = converse(router.url, agents, turns, sessions)
        requests = [int(server.metrics()["vllm:request_success_total"]) for server in (one, two)]
    return found / known, whole / all_turns, requests


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model")
    parser.add_argument("--agents", type=int, default=9)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or tiny_model.make(pathlib.Path(folder) / "tiny", max_len=8192)
        print("| router | known prompt tokens found | turns that found all | requests of each replica |\n|---|---:|---:|---|")
        for name in ROUTERS:
            tokens, whole, requests = measure(name, model, args.agents, args.turns, args.threads)
            print(f"| {name} | {100 * tokens:.0f} % | {100 * whole:.0f} % | {requests[0]}, {requests[1]} |", flush=True)


if __name__ == "__main__":
    main()
