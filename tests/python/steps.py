"""Builds Steps for the tests, one sequence a block table."""

from pathlib import Path

import ingot
import numpy as np

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
BLOCK = 16


def make_step(sequences, samples, params=None, kinds=None, tops=None, targets=None, num_decode=0):
    """`sequences`: (token ids, first position, blocks) each. `samples`: rows that produce output."""
    step = ingot.Step()
    tokens, positions, slots, starts, lens = [], [], [], [0], []
    width = max(len(blocks) for _, _, blocks in sequences)
    table = np.full((len(sequences), width), -1, np.int32)
    for s, (ids, start, blocks) in enumerate(sequences):
        table[s, : len(blocks)] = blocks
        for i, token in enumerate(ids):
            position = start + i
            tokens.append(token)
            positions.append(position)
            slots.append(blocks[position // BLOCK] * BLOCK + position % BLOCK)
        starts.append(len(tokens))
        lens.append(start + len(ids))
    step.token_ids = np.array(tokens, np.int32)
    step.positions = np.array(positions, np.int32)
    step.slot_mapping = np.array(slots, np.int64)
    step.query_start_loc = np.array(starts, np.int32)
    step.seq_lens = np.array(lens, np.int32)
    step.block_table = table
    count = len(samples)
    full = lambda value, dtype=np.int32: np.full(count, value, dtype)
    step.set_samples(
        rows=np.array(samples, np.int32),
        params=[] if params is None else [params],
        params_index=full(-1 if params is None else 0),
        slots=full(-1),
        kinds=full(ingot.OUTPUT_TOKEN if kinds is None else kinds, np.uint8),
        tops=full(tops or 0),
        targets=full(-1) if targets is None else np.array(targets, np.int32),
    )
    step.set_totals(num_decode)
    return step
