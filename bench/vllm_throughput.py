#!/usr/bin/env python3
"""Tokens a second through vLLM, `LLM.generate` with the plugin, beside `ingot bench` of the same work on the same machine, by turns.

    bench/vllm_throughput.py [-m FOLDER] [--load-format dummy] [--device cuda] [--batch 1,8,16,64] [--prompt-len 512] [--gen-len 128]

Run it with the Python that has vLLM and the plugin (docs/vllm.md). Each batch is asked for three times: all of its prompts new, which is what a
caller of vLLM has; then, its prompts in the prefix cache, for one token and for all of them, whose difference is decoding alone. Printed are both and
what `ingot bench` needs for them: its prefill and all but the first token of each sequence by its decoding. --least 0.95 makes the exit status 1 where a ratio
is below. A folder without a tokenizer is given token ids and answers in them; one with a tokenizer answers in text, which is part of what is measured.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import time

import racing as base

BLOCK = 16
WARM_UP = 3  # generations of a few tokens before anything counts


def prompts_of(vocab, batch, length, turn):
    """Token ids that no other prompt begins with; low ones are often special."""
    draw = random.Random(f"{batch} {turn}")
    return [[draw.randrange(vocab // 4, vocab) for _ in range(length)] for _ in range(batch)]


class Vllm:
    """vLLM's LLM, its engine in a process of its own as usual."""

    def __init__(self, args):
        from vllm import LLM

        folder = pathlib.Path(args.model)
        has_tokenizer = any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "tekken.json"))
        self.vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
        self.args, self.text, most = args, has_tokenizer, max(args.batch)
        length = args.prompt_len + args.gen_len
        options = dict(
            model=args.model, load_format=args.load_format, max_num_seqs=most, max_model_len=length, skip_tokenizer_init=not has_tokenizer,
            # Room for what the batch before left in the prefix cache.
            num_gpu_blocks_override=1 + 2 * most * -(-length // BLOCK), enable_prefix_caching=True,
        )
        if args.kv_dtype:
            options["additional_config"] = {"kv_dtype": args.kv_dtype}
        start = time.perf_counter()
        self.llm = LLM(**{**options, **args.vllm_args})
        self.load_seconds = time.perf_counter() - start
        for turn in range(WARM_UP):
            for batch in sorted({1, most}):
                self.generate(prompts_of(self.vocab, batch, min(args.prompt_len, 32), -1 - turn), 4)

    def generate(self, prompts, tokens):
        """Seconds of a call, and what the worker says of the steps in it."""
        from vllm import SamplingParams

        sampling = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=self.text)
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        self.llm.collective_rpc("take_step_times")
        start = time.perf_counter()
        answers = self.llm.generate(asked, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        came = sum(len(answer.outputs[0].token_ids) for answer in answers)
        if came != len(prompts) * tokens:
            raise base.RaceError(f"{came} tokens came, not {len(prompts) * tokens}")
        return seconds, self.llm.collective_rpc("take_step_times")[0]

    def measure(self, batch, turn):
        args, prompts = self.args, prompts_of(self.vocab, batch, self.args.prompt_len, turn)
        whole, _ = self.generate(prompts, args.gen_len)
        first = min(self.generate(prompts, 1)[0] for _ in range(3))
        rest, steps = self.generate(prompts, args.gen_len)
        gaps = [gap for rows, _, gap in steps[2:] if rows == batch]
        runs = [run for rows, run, _ in steps[2:] if rows == batch]
        return {"whole_s": whole, "decode_s": rest - first, "gap_us": statistics.median(gaps or [0]), "step_ms": statistics.median(runs or [0]) / 1e3}


def measure_native(args):
    """{batch: seconds of the same work} of `ingot bench`."""
    command = [args.ingot, "bench", "-m", args.model, "--load-format", args.load_format, "--batch", ",".join(map(str, args.batch)),
               "--prompt-len", args.prompt_len, "--gen-len", args.gen_len, "--json"]
    if args.device:
        command += ["--device", args.device]
    if args.threads:
        command += ["--threads", args.threads]
    if args.kv_dtype:
        command += ["--kv-dtype", args.kv_dtype]
    report = json.loads(base.call(command))
    measured = {}
    for row in report["rows"]:
        decode = row["batch"] * (args.gen_len - 1) / row["decode_tok_s"]
        prefill = row["batch"] * args.prompt_len / row["prefill_tok_s"]
        measured[row["batch"]] = {"whole_s": prefill + decode, "decode_s": decode, "gap_us": row["step_gap_us_p50"], "step_ms": row["step_ms_p50"]}
    return report["device"], report["load_s"], measured


def summarize(args, rounds):
    """A row a batch, of medians: tokens a second of both and ratios of ours to the native bench's."""
    rows = []
    for batch in args.batch:
        row = {"batch": batch}
        for name, tokens in (("whole_s", args.gen_len), ("decode_s", args.gen_len - 1)):
            kind = name.removesuffix("_s")
            row[f"{kind}_native"], row[f"{kind}_vllm"] = (
                statistics.median(batch * tokens / one[side][batch][name] for one in rounds) for side in ("native", "vllm"))
            row[f"{kind}_ratio"] = statistics.median(one["native"][batch][name] / one["vllm"][batch][name] for one in rounds)
        for name in ("gap_us", "step_ms"):
            row[f"{name}_native"], row[f"{name}_vllm"] = (statistics.median(one[side][batch][name] for one in rounds) for side in ("native", "vllm"))
        rows.append(row)
    return rows


def print_table(rows):
    print("\n| batch | decode tok/s: bench | vLLM | ratio | prompts and answers, tok/s: bench | vLLM | ratio | idle between steps, us: bench | vLLM |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for r in rows:
        print(f"| {r['batch']} | {r['decode_native']:,.1f} | {r['decode_vllm']:,.1f} | {r['decode_ratio']:.3f} | {r['whole_native']:,.1f} | "
              f"{r['whole_vllm']:,.1f} | {r['whole_ratio']:.3f} | {r['gap_us_native']:.0f} | {r['gap_us_vllm']:.0f} |")


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", help="a folder that vLLM reads; the default model unless given")
    parser.add_argument("--load-format", default="auto", choices=["auto", "dummy"])
    parser.add_argument("--device", help="auto, cpu, cuda or metal; INGOT_DEVICE unless given")
    parser.add_argument("--threads", type=int, help="of the native bench on the CPU; the plugin takes one a core")
    parser.add_argument("--kv-dtype", help="f16 unless given")
    parser.add_argument("--batch", default="1,8,16,64")
    parser.add_argument("--prompt-len", type=int, default=512)
    parser.add_argument("--gen-len", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--least", type=float, default=0, help="exit status 1 where a ratio is below")
    parser.add_argument("--ingot", help="the command to compare with; the Python package's unless given")
    parser.add_argument("--vllm-args", type=json.loads, default={}, help='more for LLM(), in JSON: {"async_scheduling": false}')
    parser.add_argument("--json", help="write the figures to this file")
    args = parser.parse_args(argv)
    args.batch = [int(word) for word in args.batch.split(",")]
    if args.gen_len < 2:
        parser.error("--gen-len: the first token is not decoding, two or more are needed")
    return args


def export_default_model(args):
    """The default model as a folder, beside what was fetched."""
    import ingot

    folder = base.cache_dir() / "vllm" / "default-model"
    if not (folder / "config.json").exists():
        base.call([args.ingot, "export-hf", ingot.default_model(), folder])
    return str(folder)


def main(argv=None):
    args = arguments(argv)
    if args.device:
        os.environ["INGOT_DEVICE"] = args.device
    for name, value in (("HF_HUB_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1"), ("VLLM_LOGGING_LEVEL", "WARNING")):
        os.environ.setdefault(name, value)
    from ingot.command import find_binary

    args.ingot = args.ingot or str(find_binary())
    args.model = args.model or export_default_model(args)
    busy = base.busy_share()
    import vllm

    ours = Vllm(args)
    rounds = []
    for turn in range(args.rounds):
        device, native_load, native = measure_native(args)
        rounds.append({"native": native, "vllm": {batch: ours.measure(batch, turn) for batch in args.batch}})
        rows = summarize(args, rounds)
        print(f"round {turn + 1} of {args.rounds}, decode so far: " + ", ".join(f"batch {r['batch']} {r['decode_ratio']:.3f}" for r in rows),
              file=sys.stderr, flush=True)
        if args.json:  # each time: a run that is stopped leaves what it has
            pathlib.Path(args.json).write_text(json.dumps({"device": device, "vllm": vllm.__version__, "rows": rows, "rounds": rounds}, indent=1))
    ours.llm.llm_engine.engine_core.shutdown()
    print(f"{args.model}, {args.prompt_len} + {args.gen_len} tokens, {device}; vLLM {vllm.__version__}; loaded in {ours.load_seconds:.1f} s, "
          f"the native bench in {native_load:.1f} s; medians of {args.rounds} rounds")
    if busy is not None and busy > base.MOST_BUSY:
        print(f"not valid: others used {busy:.0%} of the machine's cores")
    print_table(rows)
    sys.exit(min(min(r["decode_ratio"], r["whole_ratio"]) for r in rows) < args.least)


if __name__ == "__main__":
    base.run(main)
