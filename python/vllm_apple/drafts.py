"""Draft tokens, as vLLM's speculative_config wants them guessed. vLLM schedules them, the rows of the next step verify them."""

import ingot
import numpy as np

from .declined import Declined

GREEDY = ingot.StepSampling(temperature=0.0)


def check(config) -> None:
    """Declines what the engine cannot do of a SpeculativeConfig."""
    method = str(config.method)
    if method not in ("ngram", "draft_model"):
        raise Declined(
            f"speculative_config method {method}: guesses come from ngram or draft_model here; heads of a model (EAGLE, MTP, "
            "Medusa) and other methods are not run"
        )
    for name, usual in {
        "rejection_sample_method": "standard",  # a draft is accepted where it is what the engine draws
        "draft_sample_method": "greedy",
        "parallel_drafting": False,
        "num_speculative_tokens_per_batch_size": None,
        "quantization": None,
    }.items():
        value = getattr(config, name, usual)
        if value != usual and value:
            raise Declined(f"speculative_config {name}={value}: the engine has {usual} only")
    if method == "draft_model" and (getattr(config, "draft_tensor_parallel_size", None) or 1) > 1:
        raise Declined("speculative_config draft_tensor_parallel_size: the draft model runs on one rank, set it to 1")


class NgramDrafter:
    """What followed the last tokens where they stood before, as vLLM's own ngram method has it."""

    def __init__(self, config):
        self.least, self.most, self.count = config.prompt_lookup_min, config.prompt_lookup_max, config.num_speculative_tokens

    def propose(self, builder, rows: list[int]) -> list[list[int]]:
        return [self.guess(builder.tokens[row, : builder.known[row]]) for row in rows]

    def guess(self, tokens: np.ndarray) -> list[int]:
        ends, length = np.flatnonzero(tokens[:-1] == tokens[-1]), 1  # of what equals the last `length` tokens
        while length < self.most:
            longer = ends[ends >= length]
            longer = longer[tokens[longer - length] == tokens[len(tokens) - 1 - length]]
            if not len(longer):
                break
            ends, length = longer, length + 1
        if not len(ends) or length < self.least:
            return []
        return tokens[ends[-1] + 1 : ends[-1] + 1 + self.count].tolist()


class ModelDrafter:
    """The greedy guesses of a small model, all requests in one step of its engine a token.

    Its K and V have the block numbers that vLLM gave to the large model's. What it has of a request it computed since the
    request took its row: blocks found in the prefix cache are written again, with the same content.
    """

    def __init__(self, engine, builder, count: int):
        rows = len(builder.known)
        self.engine, self.count = engine, count
        self.owner = np.zeros(rows, np.int64)
        self.known = np.zeros(rows, np.int32)  # tokens of the text when it last guessed
        self.done = np.zeros(rows, np.int32)  # positions it has, guesses included
        self.guessed = np.zeros((rows, count), np.int32)
        self.nothing = np.full(rows, -1, np.int32)

    def propose(self, builder, rows: list[int]) -> list[list[int]]:
        for row in rows:
            self._follow(builder, row)
            while builder.known[row] - self.done[row] > self.count + 1:  # one at a time: they may share blocks
                most = min(self.engine.limits.max_step_tokens, int(builder.known[row] - self.done[row]) - 1)
                self._run(builder, builder.known, [row], [most])
        known, guesses, going = builder.known.copy(), {row: [] for row in rows}, rows
        for i in range(self.count):
            going = [row for row in going if self._has_room(builder, row, int(known[row]))]
            if not going:
                break
            going.sort(key=lambda row: known[row] - self.done[row] > 1)
            drawn = self._run(builder, known, going, [int(known[row] - self.done[row]) for row in going])
            for row, token in zip(going, drawn):
                builder.tokens[row, known[row]] = self.guessed[row, i] = token
                known[row] += 1
                guesses[row].append(int(token))
        return list(guesses.values())

    def _follow(self, builder, row: int) -> None:
        """Keeps what it computed of guesses that came true."""
        text, before = builder.tokens[row, : builder.known[row]], int(self.known[row])
        if self.owner[row] != builder.owner[row]:
            self.owner[row], self.done[row] = builder.owner[row], 0
        elif before < self.done[row]:
            new = text[before : self.done[row]]
            wrong = np.flatnonzero(new != self.guessed[row, : len(new)])
            self.done[row] = before + (wrong[0] if len(wrong) else len(new))
        self.known[row] = len(text)
        self.done[row] = min(self.done[row], len(text) - 1)

    def _has_room(self, builder, row: int, known: int) -> bool:
        return known <= builder.num_blocks[row] * builder.block_size and known < self.engine.limits.max_model_len

    def _run(self, builder, known, rows: list[int], counts: list[int]) -> np.ndarray:
        step, rows = ingot.Step(), np.array(rows, np.int32)
        counts = np.array(counts, np.int32)
        drawing, ask, _ = step.gather(
            builder.tokens, builder.table, known, self.nothing, rows, counts, self.done[rows], builder.block_size
        )
        size = len(drawing)
        kinds, zeros = np.full(size, ingot.OUTPUT_TOKEN, np.uint8), np.zeros(size, np.int32)
        step.set_samples(ask, [GREEDY], zeros, self.nothing[:size], kinds, zeros, self.nothing[:size])
        self.done[rows] += counts
        return self.engine.run(step).tokens
