"""Drafts behind vLLM: its speculative_config decides who guesses, the answers stay those of plain decoding."""

import contextlib

import numpy as np
import pytest
import vllm
from models import FIXTURES, generate, metric, native_tokens, tokens_of, vllm_llm, worker_of

MODEL = str(FIXTURES / "llama-bf16-llama3")
NEW = 24
NGRAM = dict(method="ngram", num_speculative_tokens=4, prompt_lookup_max=4, prompt_lookup_min=2)
DRAFT = dict(method="draft_model", model=MODEL, num_speculative_tokens=3)
HAS_DRAFT_MODELS = not vllm.__version__.startswith("0.12.")


@contextlib.contextmanager
def speculating(config, **options):
    with vllm_llm(MODEL, skip_tokenizer_init=True, speculative_config=config, **options) as llm:
        core = llm.llm_engine.engine_core.engine_core
        if not HAS_DRAFT_MODELS:  # 0.12.0 asks for drafts after a step, but in a process of its own only
            step = core.step_fn

            def step_and_more():
                outputs, executed = step()
                core.post_step(executed)
                return outputs, executed

            core.step_fn = step_and_more
        yield llm


def repetitive_prompts(count=6):
    words = [[5, 9, 17, 60, 33][i % 5 :] + [5, 9, 17, 60, 33][: i % 5] for i in range(count)]
    return [word * (4 + i) for i, word in enumerate(words)]


def accepted(llm) -> float:
    return metric(llm, "vllm:spec_decode_num_accepted_tokens")


@pytest.mark.parametrize("method", ["ngram", "draft_model"] if HAS_DRAFT_MODELS else ["ngram"])
def test_the_answers_are_those_of_plain_decoding(method):
    """Greedy and drawn, with penalties and logprobs, alone, side by side and preempted."""
    prompts = repetitive_prompts()
    ways = [dict(), dict(temperature=0.8, seed=7, top_k=5), dict(temperature=0.7, seed=3, repetition_penalty=1.2, min_tokens=4),
            dict(logprobs=2, presence_penalty=0.4)]
    # Few tokens: what is drawn is often what stood there before.
    ways = [{**way, "allowed_token_ids": [5, 9, 17, 60]} for way in ways] + ways
    answers = {}
    for config in (None, NGRAM if method == "ngram" else DRAFT):
        with speculating(config, num_gpu_blocks_override=14, max_model_len=128) as llm:
            answers[config is None] = [generate(llm, prompts, NEW, **way) for way in ways]
            if config is not None:
                assert accepted(llm) > 20
                assert metric(llm, "vllm:spec_decode_num_draft_tokens") > accepted(llm), "guesses that fail are part of the test"
    for plain, guessed in zip(answers[True], answers[False]):
        assert tokens_of(plain) == tokens_of(guessed)
        for a, b in zip(plain, guessed):
            scores = [[{t: (s.logprob, s.rank) for t, s in step.items()} for step in o.outputs[0].logprobs or []] for o in (a, b)]
            assert scores[0] == scores[1]
    assert tokens_of(answers[False][len(ways) // 2]) == native_tokens(MODEL, prompts, NEW)


def test_the_setting_reaches_the_drafter():
    from vllm_apple.drafts import NgramDrafter

    with speculating({**NGRAM, "num_speculative_tokens": 2}) as llm:
        drafter = worker_of(llm).drafter
        assert isinstance(drafter, NgramDrafter) and (drafter.least, drafter.most, drafter.count) == (2, 4, 2)


def test_what_follows_the_longest_match():
    from types import SimpleNamespace

    from vllm_apple.drafts import NgramDrafter

    drafter = NgramDrafter(SimpleNamespace(prompt_lookup_min=2, prompt_lookup_max=3, num_speculative_tokens=3))
    guess = lambda *tokens: drafter.guess(np.array(tokens, np.int32))  # noqa: E731
    assert guess(1, 2, 3, 4, 5, 9, 2, 3) == [4, 5, 9]
    assert guess(1, 2, 3, 4, 7, 2, 3, 8, 1, 2, 3) == [4, 7, 2]  # three tokens beat two
    assert guess(9, 3, 5, 3) == []  # one is too few
    assert guess(1, 1, 1, 1) == [1]
    assert guess(4) == []


DECLINED = {
    "a method": (dict(method="suffix", num_speculative_tokens=2), "suffix"),
    "heads": (dict(method="eagle", model=MODEL, num_speculative_tokens=2), "eagle"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_a_reason(name):
    config, words = DECLINED[name]
    with pytest.raises(Exception, match=f"(?i){words}"):
        with speculating(config):
            pass


def test_what_the_settings_say_is_checked():
    from types import SimpleNamespace

    from vllm_apple import drafts

    for change, words in {
        "method=mtp": "method mtp: guesses come from ngram or draft_model",
        "rejection_sample_method=synthetic": "rejection_sample_method=synthetic: the engine has standard only",
        "draft_sample_method=probabilistic": "the engine has greedy only",
    }.items():
        settings = dict(method="ngram") | dict([change.split("=")])
        with pytest.raises(drafts.Declined, match=words):
            drafts.check(SimpleNamespace(**settings))


def test_not_where_the_host_draws(monkeypatch):
    monkeypatch.setenv("VLLM_METAL_TOPK_LOGITS", "8")
    with pytest.raises(Exception, match="speculative_config"):
        with speculating(NGRAM):
            pass
