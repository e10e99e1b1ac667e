#!/usr/bin/env python3
"""Thousands of short requests on a tiny model over keep-alive connections: each is answered, each as when it ran alone.

    scripts/python_test.sh tests/server/many_test.py [--requests 2000] [--connections 16]
"""

import argparse
import asyncio
import pathlib
import random
import sys
import tempfile
import time

import light_client
import load_test
import server as fixture
import tiny_model


def body(number):
    """One of 200 different requests: text or token ids, greedy or with a seed."""
    chance = random.Random(number)
    text = "".join(chance.choices("abcdefgh ", k=chance.randint(1, 60)))
    prompt = text if number % 2 else [3 + byte for byte in text.encode()]
    out = {"model": "test", "prompt": prompt, "max_tokens": chance.randint(1, 6), "temperature": 0, "ignore_eos": True}
    return {**out, "temperature": 1.0, "seed": number} if number % 5 == 0 else out


async def worker(server, numbers, expected, faults):
    connection = await light_client.Connection.open(server.host, server.port)
    for number in numbers:
        if connection.transport is None:
            faults.append("a keep-alive connection was closed")
            connection = await light_client.Connection.open(server.host, server.port)
        answer = await connection.request("POST", "/v1/completions", body(number % 200))
        if answer.status != 200:
            faults.append(f"status {answer.status}: {answer.raw[-300:]}")
            continue
        got = (answer.text(), answer.finish(), answer.usage()["completion_tokens"])
        if expected.setdefault(number % 200, got) != got:
            faults.append(f"request {number % 200}: {expected[number % 200]} alone, {got} now")
    connection.close()


async def run(server, args, expected, faults):
    numbers = iter(range(args.requests))  # shared: whoever is free takes the next
    await asyncio.gather(*(worker(server, numbers, expected, faults) for _ in range(args.connections)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000 if fixture.SOAK else 2_000)
    parser.add_argument("--connections", type=int, default=16)
    args = parser.parse_args()
    faults, expected = [], {}
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(pathlib.Path(folder) / "tiny")
        with fixture.Server("--served-model-name", "test", "--debug-endpoints", "--threads", 1, "--kv-blocks", 256, model=model) as server:
            asyncio.run(worker(server, range(200), expected, faults))  # alone
            before, start = server.rss_mb(), time.monotonic()
            asyncio.run(run(server, args, expected, faults))
            seconds = time.monotonic() - start
            metrics, found = load_test.check_empty(server, "afterwards")
            faults += found
            total = metrics["vllm:request_success_total"]
            if total != args.requests + 200:
                faults.append(f"{args.requests + 200} requests were sent, the server counts {total:.0f}")
            after = server.rss_mb()
            if after is not None and after > before + load_test.RSS_BOUND_MB:
                faults.append(f"resident memory grew from {before:.0f} to {after:.0f} MiB")
    for fault in faults[:20]:
        print("fault: " + fault, file=sys.stderr)
    print(f"{args.requests} requests in {seconds:.1f} s ({args.requests / seconds:.0f} a second), resident {before} to {after} MiB,"
          f" {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
