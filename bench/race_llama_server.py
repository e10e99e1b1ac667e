#!/usr/bin/env python3
"""Races `ingot serve` against llama-server: same file, same threads, same requests, taking turns in one run.

    bench/race_llama_server.py --peer-bin DIR     the folder with llama-server (make peer builds one)

16 clients stream 128-token answers to 256-token prompts that share their first 128 tokens, three requests each, one after
the other. Each round starts both servers anew, the order swapped from round to round. The prompts are token ids, so both do
the same work; after the shared part no prompt of a round begins like another. A figure is the median of the rounds.
llama-server runs with what suits it: one slot a client, continuous batching, prompt cache, flash attention as it chooses.
Standard library only.
"""

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import racing as base

sys.path.insert(0, str(base.ROOT / "tests" / "server"))
import light_client  # noqa: E402
import server as fixture  # noqa: E402

FIGURES = [("output tok/s", "tok_s", 1), ("TTFT p50, ms", "ttft_p50_ms", -1), ("TTFT p95, ms", "ttft_p95_ms", -1),
           ("between tokens, mean ms", "itl_mean_ms", -1)]


def percentile(values, share):
    """The value below which `share` of them lie; between two neighbours, in proportion."""
    values = sorted(values)
    at = (len(values) - 1) * share
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


class Peer:
    """llama-server as a process, with the interface of the tests' Server."""

    def __init__(self, args, model):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.host, self.port = free.getsockname()
        context = args.clients * (args.prompt + args.gen + 64)
        self.command = [str(args.peer_bin / "llama-server"), "-m", str(model), "-t", str(args.threads), "-np", str(args.clients),
                        "-c", str(context), "--host", self.host, "--port", str(self.port), *args.peer_args.split()]
        self.env = dict(os.environ)
        for variable in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            self.env[variable] = os.pathsep.join(filter(None, [str(args.peer_bin), os.environ.get(variable)]))

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+b")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env=self.env)
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://{self.host}:{self.port}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
            if self.process.poll() is not None:
                break
        self.__exit__()
        raise base.RaceError(f"llama-server did not start: {' '.join(self.command)}")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def text_ids(ingot, model):
    """Token ids of a real text."""
    text = (base.ROOT / "tests" / "fixtures" / "text" / "reading.txt").read_text()
    return json.loads(base.call([ingot, "tokenize", "-m", model, "-p", text]))


def prompts(ids, args, turn):
    """One list of prompts a client. Words of a real text in random order: no two prompts agree beyond the shared part."""
    chance = random.Random(1000 + turn)
    shared = chance.sample(ids, args.shared)
    return [[shared + chance.sample(ids, args.prompt - args.shared) for _ in range(args.requests)] for _ in range(args.clients)]


def body(model, prompt, tokens):
    return {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}}


async def client(server, model, work, args):
    answers = []
    for prompt in work:  # a connection for each request: llama-server closes it after a stream
        connection = await light_client.Connection.open(server.host, server.port)
        answer = await connection.request("POST", "/v1/completions", body(model, prompt, args.gen))
        if answer.status != 200 or not answer.complete:
            raise base.RaceError(f"status {answer.status}: {answer.body()[:300]}")
        answers.append(answer)
        connection.close()
    return answers


async def drive(server, ids, args, turn):
    """The figures of one round."""
    with urllib.request.urlopen(f"http://{server.host}:{server.port}/v1/models") as reply:
        model = json.load(reply)["data"][0]["id"]
    warm = random.Random(turn).sample(ids, 64)
    await client(server, model, [warm], args)
    work = prompts(ids, args, turn)
    start, cpu = time.perf_counter(), time.process_time()
    done = await asyncio.gather(*(client(server, model, own, args) for own in work))
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    answers = [answer for own in done for answer in own]
    tokens, first, between = 0, [], []
    for answer in answers:
        usage = answer.usage()
        if usage is None or usage["completion_tokens"] != args.gen or usage["prompt_tokens"] != args.prompt:
            raise base.RaceError(f"asked for {args.prompt} + {args.gen} tokens, got {usage}")
        times = answer.event_times()
        tokens += args.gen
        first.append(times[0] - answer.sent)
        between.append((times[-1] - times[0]) / (args.gen - 1))
    return {"tok_s": tokens / wall, "ttft_p50_ms": 1e3 * percentile(first, 0.5), "ttft_p95_ms": 1e3 * percentile(first, 0.95),
            "itl_mean_ms": 1e3 * statistics.mean(between), "wall_s": wall, "client_cores": cpu / wall}


def table(report):
    names = report["figures"]
    lines = ["| | Ingot | llama-server | ratio | rounds' ratios |", "|---|---:|---:|---:|---|"]
    for title, key, _ in FIGURES:
        row = names[key]
        lines.append(f"| {title} | {row['ingot']:.0f} | {row['peer']:.0f} | **{row['ratio']:.2f}×** |"
                     f" {row['ratio_low']:.2f} to {row['ratio_high']:.2f} |")
    lines += ["", f"{report['cpu']}, {report['threads']} threads; {report['model']}; {report['work']}; medians of {report['rounds']}"
                  f" rounds, {report['date']}; Ingot {report['ingot']}, llama.cpp {report['peer']} (`{report['peer_command']}`).",
              f"Command: `{report['command']}`"]
    if report["busy_most"] is not None and report["busy_most"] > base.MOST_BUSY:
        lines += ["", f"**Not a valid measurement:** others used up to {report['busy_most']:.0%} of the cores."
                      " Run it again on a quiet machine."]
    return "\n".join(lines)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-bin", type=pathlib.Path, metavar="DIR", required=True, help="folder with llama-server")
    parser.add_argument("--peer-name", default="as built there", help="the peer's version, for the report")
    parser.add_argument("--peer-args", default="", help="more arguments for llama-server, as one string")
    parser.add_argument("--ingot-args", default="", help="more arguments for ingot serve, as one string")
    parser.add_argument("--only", choices=["ingot", "peer"], help="measure one of them alone")
    parser.add_argument("-m", "--model", type=pathlib.Path, help="a GGUF file (default: the default model)")
    parser.add_argument("--threads", type=int, default=2, help="threads of both (default: 2)")
    parser.add_argument("--clients", type=int, default=16, help="at a time, and llama-server's slots (default: 16)")
    parser.add_argument("--requests", type=int, default=3, help="of each client, in a round (default: 3)")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of a prompt (default: 256)")
    parser.add_argument("--shared", type=int, default=128, help="tokens that all prompts of a round begin with (default: 128)")
    parser.add_argument("--gen", type=int, default=128, help="tokens of an answer (default: 128)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each server (default: 5)")
    parser.add_argument("--busy-ok", action="store_true", help="race on a busy machine too; the report is marked as not valid")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write every figure there")
    return parser.parse_args()


def main():
    args = parse_args()
    model = args.model or pathlib.Path(base.call([base.ROOT / "scripts" / "fetch_model.sh", "--path"]).strip())
    if not (args.peer_bin / "llama-server").exists():
        raise base.RaceError(f"no llama-server in {args.peer_bin}; run: make peer")
    busy = [base.busy_share(2.0)]
    if busy[0] is not None and busy[0] > base.MOST_BUSY and not args.busy_ok:
        raise base.RaceError(f"others use {busy[0]:.0%} of the cores: figures taken now would mean nothing; wait for a quiet machine,"
                             " or give --busy-ok to try the tool out")
    ids = text_ids(fixture.binary(), model)
    makers = {"ingot": lambda: fixture.Server("--threads", args.threads, *args.ingot_args.split(), model=model),
              "peer": lambda: Peer(args, model)}
    results = {name: [] for name in makers if args.only in (None, name)}
    for turn in range(args.rounds):
        for name in list(results) if turn % 2 == 0 else reversed(list(results)):
            busy.append(base.busy_share())
            with makers[name]() as server:
                results[name].append(asyncio.run(drive(server, ids, args, turn)))
            shown = "  ".join(f"{title} {results[name][-1][key]:.1f}" for title, key, _ in FIGURES)
            print(f"    round {turn + 1}/{args.rounds}  {name:5}  {shown}  (client: {results[name][-1]['client_cores']:.0%} of a core)",
                  file=sys.stderr, flush=True)
    if args.only:
        print(json.dumps(results[args.only], indent=2))
        return
    figures = {}
    for _, key, _ in FIGURES:
        ratios = [ours[key] / theirs[key] for ours, theirs in zip(results["ingot"], results["peer"])]
        ours, theirs = (statistics.median(turn[key] for turn in results[name]) for name in ("ingot", "peer"))
        figures[key] = {"ingot": ours, "peer": theirs, "ratio": ours / theirs, "ratio_low": min(ratios), "ratio_high": max(ratios)}
    shares = [share for share in busy if share is not None]
    report = {
        "date": datetime.date.today().isoformat(), "cpu": base.cpu()[0], "threads": args.threads, "rounds": args.rounds,
        "model": model.name, "work": f"{args.clients} clients, {args.requests} requests each, prompts of {args.prompt} tokens"
                                     f" sharing {args.shared}, answers of {args.gen}",
        "ingot": base.call(["git", "-C", base.ROOT, "describe", "--always", "--dirty"]).strip(), "peer": args.peer_name,
        "peer_command": f"llama-server -t {args.threads} -np {args.clients} -c {args.clients * (args.prompt + args.gen + 64)}"
                        f" {args.peer_args}".strip(),
        "command": shlex.join(["bench/race_llama_server.py", *sys.argv[1:]]).replace(str(args.peer_bin), "DIR"),
        "figures": figures, "runs": results, "busy_most": max(shares) if shares else None,
    }
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    base.run(main)
