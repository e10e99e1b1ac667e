#!/usr/bin/env python3
"""Many clients at once, each with an address of its own, and some of them mean harm: those of abuse_cases.py, drawn by a seed.

No answer to an innocent client is lost or differs from the answer to the same request alone, though there are too few KV blocks for
all of them; and afterwards the server is as before.

    scripts/python_test.sh tests/server/siege_test.py [--total 300] [--clients 64]      10,000 requests with INGOT_SOAK=1
"""

import argparse
import asyncio
import pathlib
import random
import sys
import tempfile
import time

import abuse_cases
import light_client
import load_test
import server as fixture
import tiny_model

BLOCKS = 136  # the longest of the abuse fits; what 48 innocent clients ask for at a time does not
ANSWER = 240  # tokens at most
MEMORY_MB = 256 + 50  # of the host budget, and a little


class Siege(load_test.Load):
    def __init__(self, server, requests, expected, cases, seed):
        super().__init__(server, requests, expected, random.Random(seed))
        self.cases = cases

    async def innocent(self, address, left):
        connection = None
        while left() and len(self.faults) < 20:
            if connection is None or connection.transport is None:
                connection = await light_client.Connection.open(self.server.host, self.server.port, address)
            number = self.chance.randrange(len(self.requests))
            self.check(number, await connection.request("POST", *self.requests[number]))
        if connection is not None:
            connection.close()

    async def harmful(self, address, left):
        while left() and len(self.faults) < 20:
            case, data = self.chance.choice(self.cases)
            self.counts["abuse"] += 1
            patience = min(case.leave_after or 60, self.chance.choice([0.02, 0.3, 60]))
            status = 0
            try:
                status = await asyncio.wait_for(self.send(case, data, address), patience)
            except (asyncio.TimeoutError, ConnectionError):
                self.counts["abuse that left"] += 1
            if status not in {0, *case.allowed, *abuse_cases.BUSY}:
                self.faults.append(f"{case.name}: status {status}")

    async def send(self, case, data, address):
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port, local_addr=(address, 0))
        try:
            writer.write(case.head(len(data)))
            try:
                writer.write(data)
                await writer.drain()
            except ConnectionError:
                pass  # it has heard enough; what it said is there to read
            line = await reader.readline()
            while await reader.read(case.read_rate // 10 or 1 << 20):
                await asyncio.sleep(0.1 if case.read_rate else 0)
            return int(line.split()[1]) if line else 0
        finally:
            writer.transport.abort()

    async def run(self, clients, total):
        harm, rest = iter(range(total // 8)), iter(range(total - total // 8))
        roles = [(self.harmful, harm) if i % 4 == 3 else (self.innocent, rest) for i in range(clients)]
        await asyncio.gather(*(role(f"127.0.1.{i + 1}", lambda left=left: next(left, None) is not None) for i, (role, left) in enumerate(roles)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--total", type=int, default=10_000 if fixture.SOAK else 300, help="requests of all of them")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    requests = load_test.make_requests(40, random.Random(args.seed), 6, ANSWER)
    cases = [(case, case.data()) for make in (abuse_cases.seen, abuse_cases.invented) for case in make()]
    if not fixture.SOAK:  # the largest take their time to send
        cases = [(case, data) for case, data in cases if len(data) < 3_000_000]
    flags = ["--served-model-name", "test", "--debug-endpoints", "--threads", 1]
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(pathlib.Path(folder) / "tiny")
        with fixture.Server(*flags, "--no-prefix-caching", model=model) as server:
            expected = asyncio.run(load_test.Load(server, requests, None, None).alone())
        with fixture.Server(*flags, "--kv-blocks", BLOCKS, model=model) as server:
            before, began = server.rss_mb(), time.monotonic()
            siege = Siege(server, requests, expected, cases, args.seed)
            asyncio.run(siege.run(args.clients, args.total))
            seconds = time.monotonic() - began
            metrics, faults = load_test.check_empty(server, "after the siege")
            grown = (server.rss_mb() or 0) - (before or 0)
    faults = siege.faults + faults
    preemptions = metrics["vllm:num_preemptions_total"]
    if siege.counts["whole"] + siege.counts["abuse"] != args.total:
        faults.append(f"{args.total} requests were sent, {siege.counts['whole']} answered, {siege.counts['abuse']} abuse")
    if preemptions < siege.counts["whole"] / 100:
        faults.append(f"only {preemptions:.0f} preemptions: the test does not test what it is for")
    if metrics["ingot:failed_steps_total"] or metrics["ingot:host_bytes"]:
        faults.append(f"{metrics['ingot:failed_steps_total']:.0f} steps failed, {metrics['ingot:host_bytes']:.0f} host bytes are held")
    if grown > MEMORY_MB:
        faults.append(f"resident memory grew by {grown:.0f} MiB")
    for fault in faults[:20]:
        print("fault: " + fault, file=sys.stderr)
    print(f"{args.clients} clients, {args.total} requests in {seconds:.0f} s: {dict(siege.counts)}, {preemptions:.0f} preemptions,"
          f" memory grew by {grown:.0f} MiB, {len(faults)} faults")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
