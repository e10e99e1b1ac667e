#!/usr/bin/env python3
"""Grammars here beside llguidance and xgrammar: compile times and mask times of the same schemas and texts, one thread, in one run.

    bench/grammar_peers.py BUILD_DIR MODEL CASES.jsonl [--peers llguidance,xgrammar] [--limit N]

CASES as grammar_bench takes them: {"schema": ..., "texts": [...]} a line, texts that the schema accepts. MODEL is what grammar_bench loads; the
peers get the same tokens and ids, as `grammar_bench --tokens` prints them. Needs: pip install llguidance==1.9.1
xgrammar==0.2.8 numpy. A compile of a peer is stopped after 20 seconds. Times are those of the processor.
"""

import argparse
import base64
import json
import pathlib
import signal
import subprocess
import time


def summary(values):
    values = sorted(values)
    at = lambda share: round(values[min(len(values) - 1, int(share * len(values)))], 3) if values else 0
    return {"count": len(values), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1)}


class TooLong(Exception):
    pass


def limited(seconds, work):
    def stop(*_):
        raise TooLong
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        return work()
    finally:
        signal.alarm(0)


class LLGuidance:
    def __init__(self, tokens, eos):
        import llguidance
        import llguidance.numpy
        self.lib, self.masks = llguidance, llguidance.numpy
        self.tokenizer = llguidance.LLTokenizer(self._wrapper(tokens, eos))
        self.bits = self.masks.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    @staticmethod
    def _wrapper(tokens, eos):
        import llguidance

        class Tokens:  # what TokenizerWrapper asks of a tokenizer
            eos_token_id, bos_token_id, special_token_ids = eos, None, [eos]

            def __init__(self):
                self.tokens = [token or b"\xff<hole>" for token in tokens]

            def __call__(self, text):
                return list(text.encode() if isinstance(text, str) else text)

        return llguidance.TokenizerWrapper(Tokens())

    def compile(self, schema):
        matcher = self.lib.LLMatcher(self.tokenizer, self.lib.LLMatcher.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def walk(self, matcher, ids):
        matcher.reset()
        for token in ids:
            start = time.thread_time()
            self.masks.fill_next_token_bitmask(matcher, self.bits)
            yield (time.thread_time() - start) * 1e6
            if not matcher.consume_token(token):
                return


class XGrammar:
    def __init__(self, tokens, eos):
        import xgrammar
        self.lib = xgrammar
        self.info = xgrammar.TokenizerInfo(tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[eos])
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, len(tokens))

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, strict_mode=False)

    def walk(self, compiled, ids):
        matcher = self.lib.GrammarMatcher(compiled)
        for token in ids:
            start = time.thread_time()
            matcher.fill_next_token_bitmask(self.bits)
            yield (time.thread_time() - start) * 1e6
            if not matcher.accept_token(token):
                return


PEERS = {"llguidance": LLGuidance, "xgrammar": XGrammar}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("cases")
    parser.add_argument("--peers", default="llguidance,xgrammar")
    parser.add_argument("--limit", type=int, default=10**9, help="cases for the peers")
    args = parser.parse_args()
    bench = str(pathlib.Path(args.build) / "bin/grammar_bench")
    print("ingot", subprocess.run([bench, args.model, args.cases], check=True, capture_output=True, text=True).stdout.strip(), flush=True)
    shown = subprocess.run([bench, args.model, args.cases, "--tokens"], check=True, capture_output=True, text=True).stdout.splitlines()
    vocabulary = json.loads(shown[0])
    tokens = [base64.b64decode(token) for token in vocabulary["tokens"]]
    cases = [json.loads(line) for line in shown[1:]][:args.limit]
    for name in args.peers.split(","):
        peer = PEERS[name](tokens, vocabulary["eos"])
        compiles, masks, declined, stopped = [], [], 0, 0
        for case in cases:
            start = time.thread_time()
            try:
                compiled = limited(20, lambda case=case: peer.compile(case["schema"]))
            except TooLong:
                stopped += 1
                compiles.append(20_000)
                continue
            except Exception:
                declined += 1
                continue
            compiles.append((time.thread_time() - start) * 1e3)
            for ids in case["ids"]:
                masks += peer.walk(compiled, ids)
        print(name, json.dumps({"compile_ms": summary(compiles), "mask_us": summary(masks), "declined": declined, "stopped": stopped}), flush=True)


if __name__ == "__main__":
    main()
