#!/usr/bin/env python3
"""Many clients at once: nothing is lost, nothing is wrong, nothing leaks.

Each client sends one request after another, all streaming, with random prompts, lengths and parameters; some go away at a
random moment. Every answer that came whole must equal, byte for byte, the answer to the same request when it ran alone on
another server. Afterwards the server must be as empty as before.

    scripts/python_test.sh tests/server/load_test.py --tiny --total 240                about what the suite runs
    scripts/python_test.sh tests/server/load_test.py --seconds 120                     the long run on the default model
    scripts/python_test.sh tests/server/load_test.py --mode preempt --seconds 120      ... with hardly any KV blocks
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import tempfile
import time

import light_client
import server as fixture
import tiny_model

WORDS = ("the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were when we "
         "there can an your which their said if do will each about how up out them then she many some so these would other into has more "
         "her two like him see time could no make than first been its who now people my made over did down only way find use may water "
         "long little very after words called just where most know").split()
BLOCKS = 2048
RSS_BOUND_MB = 32  # growth after a first, smaller load that is no leak: what the allocator keeps; the KV cache comes on top


def make_requests(count, chance, longest, most_tokens):
    """Different requests, as (path, body). A third share one of a few beginnings; some draw with a seed, some are several choices."""
    beginnings = [" ".join(chance.choices(WORDS, k=longest // 3)) for _ in range(4)]
    out = []
    for number in range(count):
        words = " ".join(chance.choices(WORDS, k=chance.choice([3, 10, 30, longest // 2, longest])))
        if number % 3 == 0:
            words = chance.choice(beginnings) + " " + " ".join(chance.choices(WORDS, k=chance.randint(1, longest // 3)))
        body = {"model": "test", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": chance.randint(1, most_tokens),
                "temperature": 0}
        if number % 4 == 1:
            body.update(temperature=0.9, top_p=0.95, seed=number)
        if number % 10 == 2:
            body.update(n=2, seed=number, temperature=chance.choice([0, 0.8]))
        if number % 5 == 3:
            body.update(stop=[chance.choice(["e", " the", "\n\n", "th"])])
        if number % 7 == 4:
            body.update(frequency_penalty=0.5, repetition_penalty=1.1)
        if number % 2:
            out.append(("/v1/completions", {**body, "prompt": words}))
        else:
            out.append(("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": words}]}))
    return out


def result(answer):
    """What must be the same whenever the request is repeated."""
    choices = range(max((choice["index"] for event in answer.events() for choice in event["choices"]), default=0) + 1)
    return [(answer.text(choice), answer.finish(choice)) for choice in choices], answer.usage()["completion_tokens"]


class Load:
    def __init__(self, server, requests, expected, chance):
        self.server, self.requests, self.expected, self.chance = server, requests, expected, chance
        self.counts = collections.Counter()
        self.faults = []

    async def alone(self):
        """The answer to each request, one after the other."""
        connection = await light_client.Connection.open(self.server.host, self.server.port)
        out = []
        for path, body in self.requests:
            answer = await connection.request("POST", path, body)
            if answer.status != 200 or not answer.complete:
                raise AssertionError(f"status {answer.status}: {answer.raw[-500:]}")
            out.append(result(answer))
        connection.close()
        return out

    def check(self, number, answer):
        if answer.status != 200 or not answer.complete or not answer.body().endswith(b"data: [DONE]\n\n"):
            self.faults.append(f"request {number}: status {answer.status}, {'whole' if answer.complete else 'cut off'}: {answer.raw[-300:]}")
            return
        got = result(answer)
        self.counts["whole"] += 1
        self.counts["tokens"] += got[1]
        if got != self.expected[number]:
            self.faults.append(f"request {number} {self.requests[number][1]}\n  alone {self.expected[number]}\n  now   {got}")

    async def client(self, left):
        """`left()`: whether another request is to be sent."""
        connection = None
        while left() and len(self.faults) < 20:
            if connection is None or connection.transport is None:
                connection = await light_client.Connection.open(self.server.host, self.server.port)
            number = self.chance.randrange(len(self.requests))
            path, body = self.requests[number]
            fate = self.chance.random()
            if fate < 0.12:  # gone after some tokens
                await connection.request("POST", path, body, cut_events=self.chance.randint(1, 12))
                self.counts["cut while streaming"] += 1
                connection.close()
                connection = None
            elif fate < 0.24:  # gone before or while the prompt is read
                await connection.request("POST", path, body, cut_s=self.chance.choice([0, 0.001, 0.01, 0.03, 0.1]))
                self.counts["cut by time"] += 1
                connection.close()
                connection = None
            else:
                self.check(number, await connection.request("POST", path, body))
                if fate > 0.9:  # some do not keep the connection
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    async def run(self, clients, seconds, total):
        """For so long, or so many requests."""
        end, numbers = time.monotonic() + seconds, iter(range(total or 0))
        left = (lambda: next(numbers, None) is not None) if total else (lambda: time.monotonic() < end)
        await asyncio.gather(*(self.client(left) for _ in range(clients)))


def check_empty(server, what):
    """The server holds nothing any more, and its tables agree with each other."""
    metrics = server.wait_idle(60)
    faults = []
    if metrics["vllm:kv_cache_usage_perc"] != 0:
        faults.append(f"KV blocks in use {what}: {metrics['vllm:kv_cache_usage_perc']:.2%}")
    status, body = server.get("/debug/integrity")
    if status != 200 or json.loads(body)["faults"]:
        faults.append(f"integrity {what}: status {status}: {body[:2000]}")
    return metrics, faults


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--total", type=int, help="requests, instead of --seconds; with INGOT_SOAK=1 it is 60 seconds of 64 clients")
    parser.add_argument("--mode", choices=["default", "preempt", "no-prefix"], default="default")
    parser.add_argument("--tiny", action="store_true", help="the tiny model instead of the default one")
    parser.add_argument("--requests", type=int, default=60, help="different requests in the pool (default: 60)")
    parser.add_argument("--longest", type=int, help="words of the longest prompt (default: 300; with preempt 30)")
    parser.add_argument("--tokens", type=int, help="of the longest answer (default: 48; with preempt 160)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-rss", action="store_true", help="do not judge memory: a sanitizer keeps freed memory for a while")
    parser.add_argument("--ingot-args", default="", help="more arguments for ingot serve, as one string")
    args = parser.parse_args()
    if fixture.SOAK and args.total:
        args.total, args.clients, args.requests, args.seconds = None, 64, 60, 60
    # Preemption comes from growth: many short prompts are taken in, and their answers need more blocks than there are.
    preempt = args.mode == "preempt"
    args.longest = args.longest or (30 if preempt else 300)
    args.tokens = args.tokens or (160 if preempt else 48)
    return args


def main():
    args = parse_args()
    folder = tempfile.TemporaryDirectory()
    model = tiny_model.make(pathlib.Path(folder.name) / "tiny", max_len=4096) if args.tiny else fixture.default_model()
    longest = max(6, args.longest // 5) if args.tiny else args.longest  # the tiny model has a token a byte
    requests = make_requests(args.requests, random.Random(args.seed), longest, args.tokens)
    flags = ["--served-model-name", "test", "--debug-endpoints", *(["--threads", 1] if args.tiny else []), *args.ingot_args.split()]
    with fixture.Server(*flags, "--no-prefix-caching", model=model) as server:
        began = time.monotonic()
        load = Load(server, requests, None, None)
        expected = asyncio.run(load.alone())
        print(f"{len(requests)} answers alone in {time.monotonic() - began:.1f} s", flush=True)

    # With preempt: just enough for the largest request, which has two choices.
    blocks = (longest * (6 if args.tiny else 2) + 48 + 2 * args.tokens) // 16 + 4 if args.mode == "preempt" else BLOCKS
    flags += ["--kv-blocks", blocks, *(["--no-prefix-caching"] if args.mode == "no-prefix" else [])]
    # Pages of the KV cache count once they are written: K and V of 16 positions, of every layer and head, 2 bytes each.
    bound = RSS_BOUND_MB + blocks * 16 * 2 * (2 * 64 if args.tiny else 30 * 3 * 64) * 2 / 2**20
    faults = []
    with fixture.Server(*flags, model=model) as server:
        warm = Load(server, requests, expected, random.Random(args.seed + 1))
        asyncio.run(warm.run(args.clients, min(5.0, args.seconds / 4), args.total and args.total // 2))
        metrics, found = check_empty(server, "after the first load")
        before, tokens_before, faults = server.rss_mb(), metrics["vllm:generation_tokens_total"], warm.faults + found
        load = Load(server, requests, expected, random.Random(args.seed + 2))
        began = time.monotonic()
        asyncio.run(load.run(args.clients, args.seconds, args.total))
        seconds = time.monotonic() - began
        metrics, found = check_empty(server, "after the load")
        after = server.rss_mb()
        faults += load.faults + found
        counts = dict(load.counts)
        print(f"{args.mode}: {args.clients} clients, {seconds:.0f} s: {counts};"
              f" {(metrics['vllm:generation_tokens_total'] - tokens_before) / seconds:.0f} tok/s generated,"
              f" preemptions {metrics['vllm:num_preemptions_total']:.0f},"
              f" prefix hits {metrics['vllm:prefix_cache_hits_total'] / max(1, metrics['vllm:prefix_cache_queries_total']):.0%}", flush=True)
        if after is not None:
            print(f"resident memory: {before:.0f} MiB after a first load, {after:.0f} MiB after the whole"
                  f" (allowed: {before + bound:.0f})", flush=True)
            if not args.no_rss and after > before + bound:
                faults.append(f"resident memory grew by {after - before:.0f} MiB, more than {bound:.0f}")
        if args.mode == "preempt" and metrics["vllm:num_preemptions_total"] < counts.get("whole", 0) / 10:
            faults.append(f"only {metrics['vllm:num_preemptions_total']:.0f} preemptions: the test does not test what it is for")
        if args.mode == "default" and metrics["vllm:prefix_cache_hits_total"] == 0:
            faults.append("the prefix cache was never hit")
        if args.mode == "no-prefix" and metrics["vllm:prefix_cache_hits_total"] != 0:
            faults.append("prefix hits although the prefix cache is off")
        if counts.get("whole", 0) < args.clients / 4:
            faults.append(f"only {counts.get('whole', 0)} answers came whole")
    for fault in faults[:20]:
        print("fault: " + fault, file=sys.stderr)
    print(f"{len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
