#!/usr/bin/env python3
"""What structured output costs: streams with a schema each, without one, and mixed, taking turns against one server.

    bench/structured_streams.py [--streams 16] [--tokens 128] [--rounds 5] [--least 0.95]

Every stream has a schema of its own and an answer that no schema ends early. "held, drawn" asks for logprobs, so that every token is drawn; "held" jumps over
what is forced; "free" and "free, drawn" are the same without a schema; in "mixed" half of the streams have one. A figure is the median of the rounds, in tokens a second of
all streams. Exit 1 when a held one is below --least of its free one. Standard library only.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time

import racing as base

sys.path.insert(0, str(base.ROOT / "tests" / "server"))
import light_client  # noqa: E402
import server as fixture  # noqa: E402

WORDS = ["name", "title", "description", "address", "country", "product", "quantity", "customer", "status", "category", "identifier", "comment"]


def schema_of(number):
    """A list that is longer than any answer; objects with other keys for every stream."""
    names = [f"{WORDS[(number + i) % len(WORDS)]}_{number}" for i in range(4)]
    kinds = [{"type": "string", "maxLength": 30}, {"type": "integer", "minimum": 0, "maximum": 100000}, {"enum": ["red", "green", "blue"]},
             {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}]
    return {"type": "array", "minItems": 1000, "items": {"type": "object", "properties": dict(zip(names, kinds)), "required": names,
                                                         "additionalProperties": False}}


async def run(server, model, args, held, drawn, turn):
    """Tokens a second over all streams; `held`: how many of them have a schema."""
    connections = [await light_client.Connection.open(server.host, server.port) for _ in range(args.streams)]
    bodies = []
    for i in range(args.streams):
        body = {"model": model, "prompt": f"Round {turn}: a list of things, number {i}:", "max_tokens": args.tokens, "temperature": 1, "seed": 100 * turn + i,
                "ignore_eos": True}
        if drawn:
            body["logprobs"] = 0
        if i < held:
            body["structured_outputs"] = {"json": schema_of(i)}
        bodies.append(body)
    start = time.perf_counter()
    answers = await asyncio.gather(*(c.request("POST", "/v1/completions", b) for c, b in zip(connections, bodies)))
    seconds = time.perf_counter() - start
    for connection in connections:
        connection.close()
    tokens = 0
    for answer in answers:
        if answer.status != 200:
            raise base.RaceError(f"status {answer.status}: {answer.body()[:300]}")
        tokens += answer.json()["usage"]["completion_tokens"]
    if tokens != args.streams * args.tokens:
        raise base.RaceError(f"{tokens} tokens came, not {args.streams * args.tokens}")
    return tokens / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--model", default=None)
    parser.add_argument("--ingot-args", default="", help="more for ingot serve")
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args()
    ways = {"free": (0, False), "held": (args.streams, False), "free, drawn": (0, True), "held, drawn": (args.streams, True),
            "mixed, drawn": (args.streams // 2, True)}
    figures = {name: [] for name in ways}
    with fixture.Server(*args.ingot_args.split(), model=args.model or fixture.default_model()) as server:
        model = json.loads(server.get("/v1/models")[1])["data"][0]["id"]
        asyncio.run(run(server, model, args, args.streams, False, 99))  # warm
        for turn in range(args.rounds):
            for name, (held, drawn) in ways.items():
                figures[name].append(asyncio.run(run(server, model, args, held, drawn, turn)))
    medians = {name: statistics.median(values) for name, values in figures.items()}
    for name, value in medians.items():
        free = medians["free, drawn" if "drawn" in name else "free"]
        print(f"{name:14} {value:8.1f} tok/s   {value / free:.3f} of free   ({', '.join(f'{v:.1f}' for v in figures[name])})")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"streams": args.streams, "tokens": args.tokens, "tok_s": medians, "rounds": figures}, file, indent=1)
    sys.exit(min(medians["held"] / medians["free"], medians["held, drawn"] / medians["free, drawn"]) < args.least)


if __name__ == "__main__":
    main()
