#!/usr/bin/env python3
"""What a known prompt costs after a restart: time to its first token, computed and read from files; and what streams beside it notice.

    scripts/python_test.sh bench/prefix_tiers.py [-m MODEL] [--tokens 4000] [--rounds 3] [--streams 4] [--parts ttft,streams]

Each round starts with an empty folder: one process computes the prompt, the next finds it. Then streams run by turns alone and with two known
prompts coming in from files; printed are the median and the 99th percentile of the gaps between two tokens of a stream, and of the rounds' ratios the median.
"""

import argparse
import asyncio
import pathlib
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "server"))
import light_client  # noqa: E402
import server as fixture  # noqa: E402

WORDS = "the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not".split()


def prompt(tokens, number):
    """About as many tokens; most of these words are one each."""
    return f"Text {number}:" + "".join(" " + WORDS[(i * i + i // 7 + number) % len(WORDS)] for i in range(tokens - 5))


async def first_token(server, text):
    """(seconds to the first token, prompt tokens, of those cached)"""
    connection = await light_client.Connection.open(server.host, server.port)
    reply = await connection.request("POST", "/v1/completions", {"prompt": text, "max_tokens": 1, "temperature": 0})
    connection.close()
    usage = reply.json()["usage"]
    return reply.stamps[-1][0] - reply.sent, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


async def stream_gaps(server, number, seconds):
    connection = await light_client.Connection.open(server.host, server.port)
    reply = await connection.request("POST", "/v1/completions", {"prompt": f"Story {number}. Once upon a time", "max_tokens": 100 * seconds, "stream": True,
                                                                 "temperature": 0.7, "seed": number, "ignore_eos": True, "speculate": False})
    connection.close()
    times = [at for at, _ in reply.stamps]
    return [b - a for a, b in zip(times[5:], times[6:])]


async def gaps_beside(server, streams, seconds, prompts):
    """Gaps of the streams while the prompts come in one after the other."""
    running = [asyncio.ensure_future(stream_gaps(server, i, seconds)) for i in range(streams)]
    await asyncio.sleep(0.5)
    asked = [await first_token(server, text) for text in prompts]
    for task, gaps in zip(running, await asyncio.gather(*running)):
        del task
        asked.append(gaps)
    gaps = sorted(gap for one in asked[len(prompts):] for gap in one)
    return gaps, asked[:len(prompts)]


def percentile(values, share):
    return values[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=5, help="of streams")
    parser.add_argument("--parts", default="ttft,streams")
    args = parser.parse_args()

    def serve(folder, *flags):
        return fixture.Server("--prefix-dir", folder, *flags, model=args.model or fixture.default_model())

    if "ttft" in args.parts:
        computed, known = [], []
        for _ in range(args.rounds):
            with tempfile.TemporaryDirectory() as place:
                for times in (computed, known):
                    with serve(pathlib.Path(place) / "cache") as server:
                        seconds, tokens, cached = asyncio.run(first_token(server, prompt(args.tokens, 1)))
                    times.append(seconds)
                    print(f"{tokens} prompt tokens, {cached} cached: first token after {seconds:.3f} s", flush=True)
        print(f"first token: computed {statistics.median(computed):.3f} s, known {statistics.median(known):.3f} s, "
              f"ratio {statistics.median(known) / statistics.median(computed):.3f}", flush=True)

    if "streams" in args.parts:
        rounds = [[prompt(args.tokens, 10 + 2 * i), prompt(args.tokens, 11 + 2 * i)] for i in range(args.rounds)]
        ratios = []
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "cache"
            with serve(folder) as server:
                for text in [text for prompts in rounds for text in prompts]:
                    asyncio.run(first_token(server, text))
            with serve(folder) as server:
                for prompts in rounds:
                    quiet, _ = asyncio.run(gaps_beside(server, args.streams, args.seconds, []))
                    beside, asked = asyncio.run(gaps_beside(server, args.streams, args.seconds, prompts))
                    for seconds, tokens, cached in asked:
                        print(f"beside streams: {tokens} prompt tokens, {cached} cached: first token after {seconds:.3f} s")
                    for name, gaps in (("quiet", quiet), ("beside", beside)):
                        print(f"{name}: {args.streams} streams, {len(gaps)} gaps: median {1e3 * percentile(gaps, 0.5):.1f} ms, p99 {1e3 * percentile(gaps, 0.99):.1f} ms", flush=True)
                    ratios.append(percentile(beside, 0.99) / percentile(quiet, 0.99))
        print(f"p99: {statistics.median(ratios):.2f} times the quiet one; by round {', '.join(f'{ratio:.2f}' for ratio in ratios)}")


if __name__ == "__main__":
    started = time.monotonic()
    main()
    print(f"({time.monotonic() - started:.0f} s)")
