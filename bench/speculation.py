#!/usr/bin/env python3
"""What guessing tokens is worth: the same requests to a server that speculates and to one that does not, by turns.

    bench/speculation.py [-m MODEL] [--rounds 5] [--batches 1,4,16] [--speculate lookup] [--draft-model MODEL]

Two tasks: an edit (the answer repeats a text of some 300 tokens with small changes, which the model is held to by a bias towards it:
a model of 135M parameters does not follow such orders) and free text. Prints speed, the ratio, what was guessed and came true, and the
rows that verified it.
"""

import argparse
import asyncio
import pathlib
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "server"))
import light_client  # noqa: E402
import server as fixture  # noqa: E402

TEXT = """The harbour of the small town lies open to the west, and in the evening the light of the sun comes in over the water so low
that the fishermen shade their eyes with their hands. There are nine boats now, where there used to be forty. The oldest of them is
called Margarethe and belongs to a widow who has never been to sea; she lends it to her nephew for half of the catch. In winter the boats
are drawn up on the stones, and the men mend nets in the long shed behind the church, which smells of tar and coffee. On Sundays nobody
works. The children climb about on the boats, although it is forbidden, and play that they are sailing to Iceland. The teacher, who came
from the city three years ago, writes down what the old people tell: names of winds, of shoals, of ships that did not come back. She has
filled eleven notebooks. When she asked the widow why the boat was called Margarethe, the widow laughed and said that it was the name of a
cow. The story is not true, but everybody in the town tells it to strangers, and the teacher wrote it down as well, with a mark in the margin."""


def edit(i):
    """A prompt that has its text once already and a little of its repetition."""
    changed = TEXT.replace("Margarethe", ("Johanna", "Katharina", "Elisabeth", "Sofie")[i % 4])
    return f"Original:\n{TEXT}\n\nThe same text, with the boat renamed:\n{changed[:200]}"


def free(i):
    return f"Chapter {i + 1}. It was a quiet morning in the village when"


def counts(server):
    """What its metrics say about guessing."""
    text = server.get("/metrics")[1].decode()
    value = lambda name: float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", text, re.M).group(1))
    return {"guessed": value("vllm:spec_decode_num_draft_tokens_total"), "right": value("vllm:spec_decode_num_accepted_tokens_total"),
            "steps": value("ingot:steps_total")}


def speed(server, task, batch, tokens, turn):
    """Tokens a second of answers that run side by side."""
    async def one(i):
        body = {"prompt": task(i + batch * turn), "max_tokens": tokens, "temperature": 0.7 if task is free else 0, "seed": i, "ignore_eos": True}
        connection = await light_client.Connection.open(server.host, server.port)
        reply = await connection.request("POST", "/v1/completions", body)
        connection.close()
        return reply.json()["usage"]["completion_tokens"]

    async def everyone():
        return await asyncio.gather(*(one(i) for i in range(batch)))

    begin = time.perf_counter()
    return sum(asyncio.run(everyone())) / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", default="1,4,16")
    parser.add_argument("--speculate", default="lookup")
    parser.add_argument("--draft-model")
    args = parser.parse_args()
    guesses = ["--speculate", args.speculate] + (["--draft-model", args.draft_model] if args.draft_model else [])
    servers = {"plain": fixture.Server("--speculate", "off", model=args.model), "guessing": fixture.Server(*guesses, model=args.model)}
    for server in servers.values():
        server.start()
    print(f"{'task':>6} {'batch':>5} {'plain tok/s':>12} {'guessing':>9} {'ratio':>6} {'came true':>10} {'tokens a step':>14} {'rows a step':>12}")
    try:
        for task, tokens in ((edit, 300), (free, 128)):
            for batch in map(int, args.batches.split(",")):
                if task is edit and batch > 4:
                    continue
                for server in servers.values():
                    speed(server, task, batch, tokens // 4, 99)
                before, speeds = counts(servers["guessing"]), {kind: [] for kind in servers}
                for turn in range(args.rounds):
                    for kind, server in servers.items():
                        speeds[kind].append(speed(server, task, batch, tokens, turn))
                after = counts(servers["guessing"])
                did = {name: after[name] - before[name] for name in after}
                all_tokens = tokens * batch * args.rounds
                rows = all_tokens - did["right"] + did["guessed"]  # a guess that came true is a row and a token
                plain, guessing = (statistics.median(speeds[kind]) for kind in ("plain", "guessing"))
                ratio = statistics.median(b / a for a, b in zip(speeds["plain"], speeds["guessing"]))
                print(f"{task.__name__:>6} {batch:>5} {plain:>12.1f} {guessing:>9.1f} {ratio:>6.2f} "
                      f"{did['right'] / max(did['guessed'], 1):>10.0%} {all_tokens / did['steps']:>14.2f} {rows / did['steps']:>12.2f}", flush=True)
    finally:
        for server in servers.values():
            server.stop()


if __name__ == "__main__":
    main()
