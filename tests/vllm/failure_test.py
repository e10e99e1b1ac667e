"""A step that fails ends its requests with the reason; whoever comes later is served as if nothing had been."""

import ingot
import pytest
from models import FIXTURES, generate, native_tokens, tiny_prompts, tokens_of, vllm_llm, worker_of

MODEL = str(FIXTURES / "llama-bf16-llama3")
NEW = 16
REASON = "the device is on fire; put it out"


class FailingEngine:
    """The engine, but for one call."""

    def __init__(self, engine, call, number):
        self.engine, self.call, self.left = engine, call, number

    def __getattr__(self, name):
        return getattr(self.engine, name)

    def submit(self, step):
        if self._is_due("submit"):
            raise ingot.Error(REASON)
        return self.engine.submit(step)

    def wait(self, ticket, overlap=False):
        result = self.engine.wait(ticket, overlap)
        if self._is_due("wait"):
            raise ingot.Error(REASON)
        return result

    def _is_due(self, call):
        self.left -= call == self.call
        return call == self.call and self.left == 0


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("call", ["submit", "wait"])
@pytest.mark.parametrize("number", [1, 9])  # a step of a prompt, a step in the midst of answers
def test_a_failed_step_ends_its_requests_alone(call, number, is_async):
    prompts = tiny_prompts()[:4]
    expected = native_tokens(MODEL, prompts, NEW)
    options = dict(async_scheduling=is_async, skip_tokenizer_init=True, max_num_batched_tokens=256, max_num_seqs=2)
    with vllm_llm(MODEL, **options) as llm:
        worker = worker_of(llm)
        worker.engine = FailingEngine(worker.engine, call, number)
        outputs = generate(llm, prompts, NEW)
        failed = [o.outputs[0].finish_reason in ("abort", "error") for o in outputs]
        assert any(failed) and not all(failed), "two at a time: the others came later"
        for output, tokens, is_failed in zip(outputs, expected, failed):
            if is_failed:
                assert REASON in output.outputs[0].stop_reason
            else:
                assert list(output.outputs[0].token_ids) == tokens
        # What the failed step was to write into the cache is not taken for written.
        assert tokens_of(generate(llm, prompts, NEW)) == expected


def test_a_step_the_engine_refuses(default_folder):
    """No test double: more token lists than a step has room for, by six requests that would each fit."""
    with vllm_llm(default_folder, max_model_len=512) as llm:
        for output in generate(llm, [[1, 2, 3 + i] for i in range(6)], 4, logit_bias={i: 1.0 for i in range(49152)}):
            assert output.outputs[0].finish_reason in ("abort", "error")
            assert "step" in output.outputs[0].stop_reason, output.outputs[0].stop_reason
        assert len(generate(llm, [[1, 2, 3]], 4)[0].outputs[0].token_ids) == 4
