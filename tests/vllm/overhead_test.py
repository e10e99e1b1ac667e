"""What the plugin adds to a step of the engine: building it and reading its result, at batch 16."""

import os
import statistics
import time

from models import generate, vllm_llm, worker_of

BATCH, NEW = 16, 40
MOST_MS = 0.3


class TimedEngine:
    """The engine, with the time spent in it taken."""

    def __init__(self, engine):
        self.engine, self.spent = engine, 0.0

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def submit(self, step):
        return self._timed(self.engine.submit, step)

    def wait(self, *args):
        return self._timed(self.engine.wait, *args)

    def _timed(self, call, *args):
        start = time.perf_counter()
        try:
            return call(*args)
        finally:
            self.spent += time.perf_counter() - start


def test_overhead_of_a_decode_step(default_folder):
    with vllm_llm(default_folder, max_num_seqs=BATCH, max_model_len=256, async_scheduling=False, num_gpu_blocks_override=400) as llm:
        worker = worker_of(llm)
        engine = worker.engine = TimedEngine(worker.engine)
        steps = []
        execute, sample = worker.execute_model, worker.sample_tokens

        def execute_model(output):
            engine.spent, worker.started = 0.0, time.perf_counter()
            result = execute(output)
            worker.built = time.perf_counter() - worker.started
            worker.decodes = output.total_num_scheduled_tokens == BATCH == len(output.num_scheduled_tokens)
            return result

        def sample_tokens(grammar):
            start = time.perf_counter()
            result = sample(grammar)
            if worker.decodes:
                steps.append((worker.built + time.perf_counter() - start - engine.spent, engine.spent))
            return result

        worker.execute_model, worker.sample_tokens = execute_model, sample_tokens
        generate(llm, [[3 + i] * 20 for i in range(BATCH)], NEW)
    assert len(steps) > NEW // 2
    added = statistics.median(a for a, _ in steps) * 1e3
    inside = statistics.median(e for _, e in steps) * 1e3
    print(f"a decode step at batch {BATCH}: {added:.3f} ms in the plugin, {inside:.1f} ms in the engine")
    assert added <= MOST_MS * float(os.environ.get("INGOT_TEST_TIME_SCALE", "1"))
