#!/usr/bin/env python3
"""How long a step takes on several machines, from constants that can be measured: what a machine computes, and what a message costs on
the link between two of them.

    bench/scale_model.py check            the model beside real runs of two ranks or stages over links with a delay and a bandwidth (root, Linux)
    bench/scale_model.py draw FILE.svg    1 to 16 Macs, 1 to 1,000 replicas

A message of n bytes takes  message_s + n / bytes_s.  A step of R rows of which S are sampled, on N ranks that share every layer (tp), takes
    compute / N  +  (2 * layers + 1) sums of R * hidden * 4 bytes  +  a message of the logits, S * vocab * 4 * (N - 1) / N
    +  one of the tokens,
where a sum of n bytes is a message of n for two ranks; more add a part each for all, then tell it: two rounds of (N - 1) / N * n,
and on N stages of layers (pp), with the rows in G groups of which each is in another stage, the longer of
    compute of R / G rows  +  N - 1 messages of R / G * hidden * 4 bytes  +  one of the tokens, back to the first stage
and G times what the busiest stage computes for R / G rows.
"""

import argparse
import json
import math
import pathlib
import random
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "bench"), str(ROOT / "tests" / "server")]

import hosts  # noqa: E402
import roofline  # noqa: E402


class Link:
    """What one message costs."""

    def __init__(self, name, message_s, bytes_s):
        self.name, self.message_s, self.bytes_s = name, message_s, bytes_s

    def message(self, size):
        return self.message_s + size / self.bytes_s


class MeasuredLink:
    """... between and beyond the sizes that bench/link_bench.cc measured, in microseconds, by ranks that compute as long between two messages."""

    def __init__(self, times):
        self.points = sorted((int(size), us * 1e-6) for size, us in times.items())

    def message(self, size):
        above = next((i for i, (known, _) in enumerate(self.points) if known >= size), len(self.points) - 1)
        (low, first), (high, last) = self.points[max(0, above - 1)], self.points[max(1, above)]
        return first + (last - first) * max(0, size - low) / (high - low) if size >= low else first


class Shape:
    """What of a model decides its messages."""

    def __init__(self, layers, hidden, vocab):
        self.layers, self.hidden, self.vocab = layers, hidden, vocab

    def tp_messages(self, link, ranks, rows, samples):
        if ranks == 1:
            return 0.0
        size = rows * self.hidden * 4
        one_sum = link.message(size) if ranks == 2 else 2 * link.message(size * (ranks - 1) / ranks)
        return (2 * self.layers + 1) * one_sum + link.message(samples * self.vocab * 4 * (ranks - 1) / ranks) + link.message(samples * 4)

    def pp_messages(self, link, stages, rows):
        return (stages - 1) * link.message(rows * self.hidden * 4) + link.message(rows * 12) if stages > 1 else 0.0


def pp_step(way, groups, busiest):
    """Seconds in which all groups have a token: `way` of one through all stages and back, `busiest`: of its stages the longest."""
    return max(way, groups * busiest)


# ---- check ----

DEFAULT_MODEL = Shape(layers=30, hidden=576, vocab=49152)
PROMPT, BATCHES = 32, (1, 8)
TP_TOKENS, PP_TOKENS = 16, 96  # of stages the mean is taken, not the median of steps: long enough for what disturbs it to be even
PP_CASES = [(1, 1), (8, 1), (8, 2)]  # streams, steps in flight
# (delay in us one way, Mbit/s) of bench/link_relay.cc
LINKS = [(0, 1000), (0, 10000), (100, 10000), (300, 10000), (1000, 1000), (1000, 10000), (5000, 1000)]
REPEATS = 3
LONG_WORK = 500  # microseconds: whoever computes longer than that between two messages has slept in any case
PRIORITY = ["chrt", "-r", "10"]  # else one measures what other programs do


def run(launch, *words):
    return json.loads(subprocess.run([*launch, *PRIORITY, *words], check=True, capture_output=True, text=True, timeout=300).stdout)


def link_times(launch, build, works):
    """What messages cost ranks that compute for so many microseconds between two of them, by those."""
    rounds = [run(launch, str(build / "bin" / "link_bench"), *map(str, works)) for _ in range(REPEATS)]
    return {work: MeasuredLink(medians([times[i] for times in rounds])) for i, work in enumerate(works)}


def bench(launch, build, batches, tokens, *cut):
    report = run(launch, str(build / "bin" / "ingot"), "bench", "--json", "--limit-gb-s", "1", "-t", "1", *cut, "--batch", *map(str, batches),
                 "--prompt-len", str(PROMPT), "--gen-len", str(tokens))
    return {row["batch"]: row for row in report["rows"]}


def medians(rounds):
    return {key: statistics.median(steps[key] for steps in rounds) for key in rounds[0]}


def tp_steps(launch, build, repeats):
    """Seconds of (kind, rows, samples) with two ranks that share every layer."""
    rounds = []
    for _ in range(repeats):
        steps = {}
        for batch, row in bench(launch, build, BATCHES, TP_TOKENS, "--tp", "2").items():
            steps["decode", batch, batch] = row["step_ms_p50"] / 1e3
            steps["prefill", batch * PROMPT, batch] = batch * PROMPT / row["prefill_tok_s"]
        rounds.append(steps)
    return medians(rounds)


def pp_steps(launch, build, repeats, cases):
    """Seconds in which (streams, steps in flight) get a token each with two stages, and what of one step is the first stage's."""
    rounds, firsts = [], []
    for _ in range(repeats):
        rows = {(streams, flying): bench(launch, build, [streams], PP_TOKENS, "--pp", "2", "--in-flight", str(flying))[streams] for streams, flying in cases}
        rounds.append({case: case[0] / row["decode_tok_s"] for case, row in rows.items()})
        firsts.append({case: row["step_ms_p50"] * 1e-3 - row["step_gap_us_p50"] * 1e-6 for case, row in rows.items()})
    return medians(rounds), medians(firsts)


def check(build, delays):
    with hosts.Hosts() as near:
        launch = [*near.mpirun(2, hosts=1), "-x", "INGOT_LINK=tcp"]  # as between hosts
        shared = tp_steps(launch, build, REPEATS)
        stages, firsts = pp_steps(launch, build, REPEATS, [(1, 1), (4, 1), (8, 1)])
        # Microseconds between two messages: of a step that ranks share, and of a stage.
        work = {step: seconds * 1e6 / (2 * DEFAULT_MODEL.layers + 3) for step, seconds in shared.items()}
        work |= {rows: seconds * 1e6 / 2 for (rows, _), seconds in stages.items()}
        work = {step: min(round(us), LONG_WORK) for step, us in work.items()}
        memory = link_times(launch, build, sorted(set(work.values())))
    print("| link | step | computes between two messages | a message | predicted, ms | measured, ms | error |\n|---|---|---|---|---|---|---|")
    errors = []
    for delay, mbit in LINKS:
        if delays and delay not in delays:
            continue
        with hosts.Hosts(str(build / "bin" / "link_relay"), delay, mbit) as far:
            launch, repeats = far.mpirun(2), 1 if delay >= 5000 else REPEATS
            link, steps = link_times(launch, build, sorted(set(work.values()))), tp_steps(launch, build, repeats)
            flown, _ = pp_steps(launch, build, repeats, PP_CASES)
        name = f"{mbit / 1000:g} Gbit/s" + (f", {delay / 1000:g} ms" if delay else "")

        def show(what, us, rows, predicted, seconds):
            errors.append(predicted / seconds - 1)
            size = rows * DEFAULT_MODEL.hidden * 4
            between = f"{us / 1e3:.2f} ms" + (" or more" if us == LONG_WORK else "")
            print(f"| {name} | {what}{rows} row{'s' if rows > 1 else ''} | {between} | {size / 1024:.0f} KiB, {link[us].message(size) * 1e3:.2f} ms "
                  f"| {predicted * 1e3:.1f} | {seconds * 1e3:.1f} | {errors[-1]:+.0%} |", flush=True)

        for (kind, rows, samples), seconds in steps.items():
            us = work[kind, rows, samples]
            added = [DEFAULT_MODEL.tp_messages(way[us], 2, rows, samples) for way in (link, memory)]
            predicted = shared[kind, rows, samples] + added[0] - added[1]
            if kind == "prefill":  # nothing runs while the step is handed out
                predicted += link[us].message(0) - memory[us].message(0)
            show(f"tp, {kind}, ", us, rows, predicted, seconds)
        for (streams, flying), seconds in flown.items():
            rows = streams // flying
            us = work[rows]
            alone, first = stages[rows, 1], firsts[rows, 1]
            added = [DEFAULT_MODEL.pp_messages(way[us], 2, rows) for way in (link, memory)]
            predicted = pp_step(alone + added[0] - added[1], flying, max(first, alone - first))
            show(f"pp, decode, {flying} step{'s' if flying > 1 else ''} in flight of ", us, rows, predicted, seconds)
    worst = max(map(abs, errors))
    print(f"\n{sum(abs(error) <= 0.15 for error in errors)} of {len(errors)} within 15 %, the largest error is {worst:.0%}")
    return worst


# ---- draw ----

# Assumptions, measured by nobody here. M3 Ultra: Apple's figure of its memory's bandwidth, of which kernels reach a share. RDMA over Thunderbolt 5:
# 80 Gbit/s by its specification, 50 us "or less", where TCP takes 300 (Jeff Geerling's measurements of four Mac Studios, December 2025). 10 GbE: as TCP there.
BANDWIDTH, SHARE = 819e9, 0.85
THUNDERBOLT = Link("Thunderbolt 5, RDMA", 50e-6, 10e9)
ETHERNET = Link("10 GbE, TCP", 300e-6, 1.25e9)
MODEL, FORMAT, CONTEXT = "Devstral-Small-2507", "bf16", 512
MACS = (1, 2, 4, 8, 16)
# Replicas: of the default model on two cores of this repository's benchmark machine, tokens/s; conversations of so many turns.
PREFILL, DECODE, TURNS, PROMPT_TOKENS, ANSWER_TOKENS = 1570.0, 400.0, 8, 1000, 100
ROUTER_S = 1e-3  # of a request in a router of one process: an assumption


def mac_compute(batch):
    return roofline.Model(MODEL).step_bytes(batch, roofline.BITS[FORMAT], CONTEXT) / (SHARE * BANDWIDTH)


def mac_shape():
    model = roofline.Model(MODEL)
    return Shape(model.layers, model.hidden, model.vocab)


def tp_speed(macs, link, streams):
    return streams / (mac_compute(streams) / macs + mac_shape().tp_messages(link, macs, streams, streams))


def pp_speed(macs, link, streams):
    groups = min(macs, streams)
    rows = streams / groups
    return streams / pp_step(mac_compute(rows) + mac_shape().pp_messages(link, macs, rows), groups, mac_compute(rows) / macs)


def misses(replicas, turns, knows_prefixes):
    """Of a conversation's turns, those that meet a replica which has not read it."""
    return 1.0 if knows_prefixes else replicas * (1 - (1 - 1 / replicas) ** turns)


def replica_rate(replicas, knows_prefixes):
    """Requests a second. A turn that finds its conversation reads what is new; one that does not, all of it."""
    new = PROMPT_TOKENS / TURNS
    average = PROMPT_TOKENS / 2  # of a conversation, so far
    found = 1 - misses(replicas, TURNS, knows_prefixes) / TURNS
    seconds = (found * new + (1 - found) * average) / PREFILL + ANSWER_TOKENS / DECODE
    return min(replicas / seconds, 1 / ROUTER_S)


def simulated_misses(replicas, turns, conversations=4000):
    chance = random.Random(1)
    return sum(len({chance.randrange(replicas) for _ in range(turns)}) for _ in range(conversations)) / conversations


COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#bf8700")


def panel(x, title, unit, axis, xs, lines):
    """A chart with both axes logarithmic: `lines` are (name, values)."""
    width, height, left, top = 300, 230, 50, 44
    low = min(min(values) for _, values in lines) / 1.3
    high = max(max(values) for _, values in lines) * 1.3
    px = lambda value: x + left + math.log(value / xs[0]) / math.log(xs[-1] / xs[0]) * (width - left - 16)
    py = lambda value: top + height - math.log(value / low) / math.log(high / low) * height
    out = [f'<text x="{x + left}" y="20" font-size="14">{title}</text>', f'<text x="{x + left}" y="36" fill="#666">{unit}</text>']
    tick = 10 ** math.ceil(math.log10(low))
    ticks = sorted(value for power in range(6) for value in (tick / 5 * 10 ** power, tick / 2 * 10 ** power, tick * 10 ** power)
                   if low <= value <= high)
    for value in ticks:
        out.append(f'<line x1="{x + left}" x2="{x + width - 16}" y1="{py(value):.1f}" y2="{py(value):.1f}" stroke="#ddd"/>'
                   f'<text x="{x + left - 6}" y="{py(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in xs:
        out.append(f'<text x="{px(value):.1f}" y="{top + height + 18}" text-anchor="middle">{value:,}</text>')
    out.append(f'<text x="{x + (left + width) / 2}" y="{top + height + 36}" text-anchor="middle" fill="#666">{axis}</text>')
    for i, (name, values) in enumerate(lines):
        points = " ".join(f"{px(a):.1f},{py(b):.1f}" for a, b in zip(xs, values))
        ideal = name == "all that machines give"
        colour, dash = ("#888", ' stroke-dasharray="4 4"') if ideal else (COLOURS[i], "")
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        y = top + height + 56 + 16 * i
        out.append(f'<line x1="{x + left}" x2="{x + left + 20}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"{dash}/>'
                   f'<text x="{x + left + 26}" y="{y}">{name}</text>')
    return "\n".join(out)


def draw(path):
    for replicas in (2, 10, 1000):
        assert abs(simulated_misses(replicas, TURNS) / misses(replicas, TURNS, False) - 1) < 0.02
    panels = []
    for i, (streams, title) in enumerate(((1, "One stream"), (64, "64 streams"))):
        lines = [(f"tp, {link.name}", [tp_speed(n, link, streams) for n in MACS]) for link in (THUNDERBOLT, ETHERNET)]
        lines += [(f"pp, {link.name}", [pp_speed(n, link, streams) for n in MACS]) for link in (THUNDERBOLT, ETHERNET)]
        lines.append(("all that machines give", [n * streams / mac_compute(streams) for n in MACS]))
        panels.append(panel(310 * i, title, f"tokens/s, {MODEL} {FORMAT}, M3 Ultra", "Macs", MACS, lines))
    counts = (1, 10, 100, 1000)
    steps = sorted({round(10 ** (k / 8)) for k in range(25)})
    lines = [("a router that knows prefixes", [replica_rate(n, True) for n in steps]),
             ("one that does not", [replica_rate(n, False) for n in steps]),
             ("all that machines give", [n * replica_rate(1, True) for n in steps])]
    replicas = panel(620, "Replicas", "requests/s, default model, 2 cores each", "replicas", steps, lines)
    for value in steps:  # ticks of the axis: whole powers
        if value not in counts:
            replicas = "\n".join(line for line in replicas.split("\n") if f'text-anchor="middle">{value:,}<' not in line)
    panels.append(replicas)
    body = "\n".join(panels)
    pathlib.Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 930 420" font-family="sans-serif" font-size="12">\n'
        f'<rect width="930" height="420" fill="white"/>\n{body}\n</svg>\n')
    for streams in (1, 64):
        for name, speed in (("tp", tp_speed), ("pp", pp_speed)):
            for link in (THUNDERBOLT, ETHERNET):
                print(f"{streams} streams, {name}, {link.name}: " + ", ".join(f"{n}: {speed(n, link, streams):.3g}" for n in MACS))
    print("replicas: " + ", ".join(f"{n}: {replica_rate(n, True):.3g} and {replica_rate(n, False):.3g}" for n in counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    checking = commands.add_parser("check", help="real runs beside the model")
    checking.add_argument("--delays", type=int, nargs="*", help="of the links, those with one of these in us; all unless given")
    checking.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="configured with -DINGOT_BUILD_BENCH=ON")
    commands.add_parser("draw", help="the picture of docs/distributed.md").add_argument("file")
    args = parser.parse_args()
    if args.command == "draw":
        draw(args.file)
    elif (reason := hosts.missing("mpirun")) is not None:
        sys.exit(f"scale_model.py check: {reason}")
    else:
        sys.exit(check(args.build, args.delays) > 0.15)


if __name__ == "__main__":
    main()
