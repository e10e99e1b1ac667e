#!/usr/bin/env python3
"""Does a long prompt stall the streams that are running? Gaps between their tokens, without it and while it is prefilled.

    bench/long_prompt_stall.py [--streams 8] [--prompt 4000] [--rounds 5] [--most 4]

Streams run alone for a while, then a long prompt arrives; the time until its first token is the time "with it". Each round has
a prompt of its own, so nothing of it is cached. What is judged: the 99th percentile of the gaps with it, over the median
without it. Exit 1 when that is above --most. Standard library only.
"""

import argparse
import asyncio
import json
import pathlib
import random
import sys
import time

import racing as base
from race_llama_server import body, percentile, text_ids

sys.path.insert(0, str(base.ROOT / "tests" / "server"))
import light_client  # noqa: E402
import server as fixture  # noqa: E402


class Stream:
    """A request whose answer is read while it runs, and cut off at the end."""

    async def start(self, server, model, prompt, tokens):
        self.connection = await light_client.Connection.open(server.host, server.port)
        self.task = asyncio.create_task(self.connection.request("POST", "/v1/completions", body(model, prompt, tokens)))
        return self

    async def end(self):
        """The arrival of each token."""
        if self.task.done():
            raise base.RaceError(f"a stream ended too early, after {len(self.task.result().event_times())} tokens"
                                 f" (status {self.task.result().status}): give a larger --tokens")
        self.connection.close()
        return (await self.task).event_times()


def gaps(streams, start, end):
    """Milliseconds between two tokens of a stream, where the later one arrived between start and end."""
    return [1e3 * (after - before) for times in streams for before, after in zip(times, times[1:]) if start <= after <= end]


async def measure(server, ids, args, turn):
    """(gaps without the long prompt, gaps with it, its time to first token in ms)"""
    chance = random.Random(turn)
    model = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
    streams = [await Stream().start(server, model, chance.sample(ids, 32), args.tokens) for _ in range(args.streams)]
    await asyncio.sleep(1 + args.alone_s)  # the first second is theirs to get going
    arrived = time.perf_counter()
    connection = await light_client.Connection.open(server.host, server.port)
    long_answer = await connection.request("POST", "/v1/completions", body(model, chance.choices(ids, k=args.prompt), 1))
    if long_answer.status != 200:
        raise base.RaceError(f"status {long_answer.status}: {long_answer.body()[:300]}")
    connection.close()
    first = long_answer.event_times()[0]
    times = [await stream.end() for stream in streams]
    await asyncio.sleep(0.5)
    return gaps(times, arrived - args.alone_s, arrived), gaps(times, arrived, first), 1e3 * (first - arrived)


def row(values):
    return {"gaps": len(values), "p50_ms": percentile(values, 0.5), "p99_ms": percentile(values, 0.99), "max_ms": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8, help="that run when the prompt arrives (default: 8)")
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the long prompt (default: 4000)")
    parser.add_argument("--tokens", type=int, default=3000, help="the most a stream may generate (default: 3000)")
    parser.add_argument("--alone-s", type=float, default=3.0, help="seconds measured without the prompt (default: 3)")
    parser.add_argument("--rounds", type=int, default=5, help="prompts, one after the other (default: 5)")
    parser.add_argument("--most", type=float, default=4.0, help="the ratio that is allowed (default: 4)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-m", "--model", type=pathlib.Path, help="the model (default: the default model)")
    parser.add_argument("--ingot-args", default="", help="more arguments for ingot serve, as one string")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every figure there")
    args = parser.parse_args()
    model = args.model or pathlib.Path(base.call([base.ROOT / "scripts" / "fetch_model.sh", "--path"]).strip())
    ids = text_ids(fixture.binary(), model)
    without, during, first = [], [], []
    busy = base.busy_share(1.0)
    with fixture.Server("--threads", args.threads, *args.ingot_args.split(), model=model) as server:
        for turn in range(args.rounds):
            quiet, loaded, ttft = asyncio.run(measure(server, ids, args, turn))
            without, during, first = without + quiet, during + loaded, [*first, ttft]
            print(f"    round {turn + 1}/{args.rounds}  without p50 {percentile(quiet, 0.5):.1f} ms   with p99"
                  f" {percentile(loaded, 0.99):.1f} ms, max {max(loaded):.1f} ms   first token after {ttft:.0f} ms", file=sys.stderr, flush=True)
    report = {"streams": args.streams, "prompt": args.prompt, "threads": args.threads, "cpu": base.cpu()[0], "busy": busy,
              "without": row(without), "with": row(during), "long_ttft_ms": percentile(first, 0.5)}
    report["ratio"] = report["with"]["p99_ms"] / report["without"]["p50_ms"]
    print(f"| {args.streams} streams | gaps | p50 ms | p99 ms | longest ms |\n|---|---:|---:|---:|---:|")
    for name in ("without", "with"):
        line = report[name]
        print(f"| {name} a {args.prompt}-token prompt | {line['gaps']} | {line['p50_ms']:.1f} | {line['p99_ms']:.1f} | {line['max_ms']:.1f} |")
    print(f"\np99 with / median without: {report['ratio']:.2f} (allowed: {args.most:g}); the long prompt's first token after"
          f" {report['long_ttft_ms']:.0f} ms. {report['cpu']}, {args.threads} threads.")
    if busy is not None and busy > base.MOST_BUSY:
        print(f"**Not a valid measurement:** others used {busy:.0%} of the cores.")
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(report["ratio"] > args.most)


if __name__ == "__main__":
    base.run(main)
