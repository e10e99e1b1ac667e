"""The ingot module on the tiny fixtures: Engine against the reference logits, LLM against Engine."""

import json
import sys
import threading
import time
import unittest

import ingot
import numpy as np
from steps import MODELS, make_step

MODEL = str(MODELS / "llama-bf16-llama3")


def greedy(engine, prompt, count):
    """Greedy tokens of one sequence, a step each."""
    blocks = list(range(1, 1 + (len(prompt) + count) // 16 + 1))
    tokens = [int(engine.run(make_step([(prompt, 0, blocks)], [len(prompt) - 1])).tokens[0])]
    while len(tokens) < count:
        at = len(prompt) + len(tokens) - 1
        tokens.append(int(engine.run(make_step([(tokens[-1:], at, blocks)], [0], num_decode=1)).tokens[0]))
    return tokens


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = ingot.Engine(MODEL, device="cpu", max_seqs=8)
        cls.ids = json.loads((MODELS / "llama-bf16-llama3" / "ids.json").read_text())
        cls.reference = np.load(MODELS / "llama-bf16-llama3" / "logits.npy")
        if isinstance(cls.ids, dict):
            cls.ids = cls.ids["ids"]
        cls.ids = list(np.ravel(cls.ids))[: cls.reference.shape[-2]]

    def test_logits_match_the_reference(self):
        rows = list(range(min(len(self.ids), self.engine.limits.max_logits_rows)))
        ids = [int(i) for i in self.ids]
        blocks = list(range(1, 2 + len(ids) // 16))
        result = self.engine.run(make_step([(ids, 0, blocks)], rows, kinds=ingot.OUTPUT_FULL_LOGITS))
        self.assertEqual(result.logits.shape, (len(rows), self.engine.limits.vocab))
        reference = self.reference.reshape(-1, self.engine.limits.vocab)[rows]
        self.assertLess(np.abs(result.logits - reference).max(), 0.15)
        self.assertEqual(result.stats["submissions"], 1)
        self.assertEqual(result.stats["waits"], 1)

    def test_scores_are_log_softmax_of_the_logits(self):
        ids = [int(i) for i in self.ids][:8]
        logits = self.engine.run(make_step([(ids, 0, [1])], [0, 1, 2], kinds=ingot.OUTPUT_FULL_LOGITS)).logits
        expected = logits - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(
            1, keepdims=True
        )
        scored = self.engine.run(
            make_step([(ids, 0, [1])], [0, 1, 2], kinds=ingot.OUTPUT_SCORE, tops=3, targets=ids[1:4])
        )
        np.testing.assert_array_equal(scored.tokens, ids[1:4])
        np.testing.assert_allclose(scored.logprobs, expected[[0, 1, 2], ids[1:4]], atol=1e-4)
        np.testing.assert_allclose(scored.top_values, -np.sort(-expected, axis=1)[:, :3], atol=1e-4)

    def test_a_bad_step_names_the_field_and_the_engine_lives(self):
        step = make_step([([1, 2, 3], 0, [1])], [2])
        step.token_ids = np.array([1, self.engine.limits.vocab, 3], np.int32)
        for call in (self.engine.validate, self.engine.submit, self.engine.run):
            with self.assertRaises(ingot.StepError) as caught:
                call(step)
            self.assertEqual(caught.exception.field, "token_ids")
            self.assertEqual(caught.exception.index, 1)
            self.assertEqual(caught.exception.limit, self.engine.limits.vocab)
            self.assertEqual(caught.exception.kind, "bad_call")
        self.engine.run(make_step([([1, 2, 3], 0, [1])], [2]))

    def test_two_steps_in_flight_feed_each_other(self):
        expected = greedy(self.engine, [5, 6, 7], 2)
        first = self.engine.submit(make_step([([5, 6, 7], 0, [2])], [2]))
        second = self.engine.submit(make_step([([-1], 3, [2])], [0], num_decode=1))
        self.assertEqual([int(self.engine.wait(t).tokens[0]) for t in (first, second)], expected)

    def test_the_gil_is_released_while_a_step_runs(self):
        ticks = []
        stop = threading.Event()

        def tick():
            while not stop.is_set():
                ticks.append(None)
                time.sleep(0.0005)

        thread = threading.Thread(target=tick)
        ids = [3] * 240
        engine = ingot.Engine(MODEL, device="cpu", threads=1, max_seqs=1)
        step = make_step([(ids, 0, list(range(15)))], [239])
        thread.start()
        # Nobody is asked to give the GIL away: the thread runs when a step releases it, and at no other time.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        try:
            before = len(ticks)
            for _ in range(2000):
                engine.run(step)  # some milliseconds each
                if len(ticks) > before + 3:
                    break
            seen = len(ticks) - before
        finally:
            sys.setswitchinterval(interval)
            stop.set()
            thread.join()
        self.assertGreater(seen, 3)

    def test_wrong_arrays_are_refused(self):
        step = ingot.Step()
        with self.assertRaises(TypeError):
            step.token_ids = np.zeros((2, 2), np.int32)
        with self.assertRaises(ingot.Error):
            step.set_samples(np.array([0], np.int32), [], np.array([0], np.int32), np.array([-1], np.int32),
                             np.array([0], np.uint8), np.array([0], np.int32), np.array([-1], np.int32))

    def test_a_missing_model_says_so(self):
        with self.assertRaises(ingot.Error) as caught:
            ingot.Engine("/nowhere/model.gguf")
        self.assertIn("/nowhere/model.gguf", str(caught.exception))


class LlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = ingot.LLM(MODEL, device="cpu", max_seqs=8)
        cls.engine = ingot.Engine(MODEL, device="cpu", max_seqs=8)

    def tearDown(self):
        self.assertEqual(self.llm.check_integrity(), [])

    def test_greedy_equals_the_engine_alone_and_batched(self):
        prompts = [[5 + i, 6, 7, 8 + i] for i in range(4)]
        expected = [greedy(self.engine, prompt, 12) for prompt in prompts]
        alone = self.llm.generate(prompts[0], max_tokens=12, temperature=0, ignore_eos=True)
        self.assertEqual(alone.choices[0].token_ids, expected[0])
        together = self.llm.generate(prompts, max_tokens=12, temperature=0, ignore_eos=True)
        self.assertEqual([c.choices[0].token_ids for c in together], expected)
        self.assertEqual([c.choices[0].finish_reason for c in together], ["length"] * 4)

    def test_the_type_of_the_kv_cache(self):
        answer = ingot.LLM(MODEL, device="cpu", kv_dtype="int8", max_seqs=2).generate(
            [5, 6, 7, 8], max_tokens=12, temperature=0, ignore_eos=True
        )
        engine = ingot.Engine(MODEL, device="cpu", kv_dtype="int8", max_seqs=2)
        self.assertEqual(answer.choices[0].token_ids, greedy(engine, [5, 6, 7, 8], 12))
        plans = [ingot.inspect(MODEL, kv_blocks=100, kv_dtype=name).memory["kv_cache"] for name in ("f16", "int8")]
        self.assertLess(plans[1], 0.6 * plans[0])
        with self.assertRaises(ingot.Error) as caught:
            ingot.LLM(MODEL, kv_dtype="fp8")
        self.assertIn("--kv-dtype fp8: must be f16, bf16, int8 or f32", str(caught.exception))

    def test_stream_gives_the_same_tokens(self):
        whole = self.llm.generate([9, 8, 7], max_tokens=10, temperature=0, ignore_eos=True).choices[0]
        deltas = list(self.llm.stream([9, 8, 7], max_tokens=10, temperature=0, ignore_eos=True))
        self.assertEqual([t for d in deltas for t in d.token_ids], whole.token_ids)
        self.assertEqual(deltas[-1].finish_reason, "length")

    def test_closing_a_stream_cancels_it(self):
        stream = self.llm.stream([9, 8, 7], max_tokens=400, temperature=0, ignore_eos=True)
        next(stream)
        stream.close()
        deadline = time.monotonic() + 60
        while self.llm.stats()["running"] and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.llm.stats()["running"], 0)

    def test_seeds_repeat_and_choices_differ(self):
        options = dict(max_tokens=16, temperature=1.0, seed=7, n=2, ignore_eos=True)
        first = self.llm.generate([4, 5, 6], **options)
        again = self.llm.generate([4, 5, 6], **options)
        self.assertEqual([c.token_ids for c in first.choices], [c.token_ids for c in again.choices])
        self.assertNotEqual(first.choices[0].token_ids, first.choices[1].token_ids)

    def test_no_seed_is_a_random_one(self):
        options = dict(max_tokens=16, temperature=1.0, ignore_eos=True)
        answers = {tuple(self.llm.generate([4, 5, 6], seed=None, **options).choices[0].token_ids) for _ in range(4)}
        answers |= {tuple(self.llm.generate([4, 5, 6], **options).choices[0].token_ids) for _ in range(4)}
        self.assertGreater(len(answers), 4)

    def test_logprobs_are_reported(self):
        answer = self.llm.generate([4, 5, 6], max_tokens=3, temperature=0, logprobs=2, prompt_logprobs=1, ignore_eos=True)
        choice = answer.outputs[0]
        self.assertEqual([entry[token].rank for entry, token in zip(choice.logprobs, choice.token_ids)], [1, 1, 1])
        self.assertEqual([len(entry) for entry in choice.logprobs], [2, 2, 2])  # the token itself is among the likely ones
        self.assertAlmostEqual(choice.cumulative_logprob, sum(max(e.logprob for e in entry.values()) for entry in choice.logprobs))
        self.assertIsNone(answer.prompt_logprobs[0])
        self.assertEqual([token in entry for token, entry in zip([5, 6], answer.prompt_logprobs[1:])], [True, True])
        self.assertIsNone(self.llm.generate([4, 5, 6], max_tokens=1).outputs[0].logprobs)

    def test_a_parameter_out_of_range_is_an_error(self):
        with self.assertRaises(ingot.Error):
            self.llm.generate([1, 2], top_p=2.0)

    def test_answers_of_a_format(self):
        class Point:  # as pydantic's models are
            @staticmethod
            def model_json_schema():
                return {"type": "object", "properties": {"y": {"enum": [1, 2]}, "x": {"type": "boolean"}}, "required": ["y", "x"],
                        "additionalProperties": False}

        llm = ingot.LLM(device="cpu", max_seqs=4, max_model_len=512)
        schema = {"type": "json_schema", "json_schema": {"schema": Point.model_json_schema()}}
        for form in ({"response_format": Point}, {"response_format": schema}, {"structured": {"json": Point}}):
            text = llm.generate("A point:", max_tokens=80, seed=1, **form).text
            self.assertEqual(sorted(json.loads(text)), ["x", "y"], text)
        self.assertEqual(list(json.loads(llm.generate("A point:", max_tokens=80, seed=1, response_format=Point).text)), ["y", "x"])
        answers = llm.generate(["One?", "Two?"], max_tokens=20, temperature=0, structured={"choice": ["yes", "no"]})
        self.assertTrue(all(answer.text in ("yes", "no") for answer in answers))
        chat = llm.chat([{"role": "user", "content": "A number?"}], max_tokens=20, structured={"regex": "[0-9]{3}"})
        self.assertRegex(chat.text, "^[0-9]{3}$")
        pieces = "".join(delta.text for delta in llm.stream("A word:", max_tokens=20, structured={"grammar": 'root ::= [a-z]{4}'}))
        self.assertRegex(pieces, "^[a-z]{4}$")
        with self.assertRaises(ingot.Error) as caught:
            llm.generate("x", response_format={"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}})
        self.assertIn("response_format: #/$ref", str(caught.exception))
        for wrong in ({"structured": {"jsom": {}}}, {"response_format": {}}, {"response_format": Point, "structured": {"regex": "a"}}):
            with self.assertRaises(ValueError):
                llm.generate("x", **wrong)


if __name__ == "__main__":
    unittest.main()
