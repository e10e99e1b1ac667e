"""The plugin's step builder without vLLM: SchedulerOutputs of a small scheduler of our own, against LLM's greedy tokens."""

import unittest
from types import SimpleNamespace

import ingot
import numpy as np
from steps import MODELS
from vllm_apple.step_builder import StepBuilder

MODEL = str(MODELS / "llama-bf16-llama3")
NEW = 12


def make_params(**changes):
    fields = dict(
        temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, presence_penalty=0.0, frequency_penalty=0.0,
        repetition_penalty=1.0, seed=None, min_tokens=0, all_stop_token_ids=set(), logit_bias=None,
        allowed_token_ids=None, bad_words_token_ids=None, structured_outputs=None, logprobs=None, prompt_logprobs=None,
    )
    return SimpleNamespace(**{**fields, **changes})


class TinyScheduler:
    """Sends what vLLM's scheduler sends: chunks of `budget` tokens a step, blocks in ascending order."""

    def __init__(self, prompts, params, budget):
        self.budget, self.next_block = budget, 1
        self.seqs = {str(i): dict(tokens=list(p), prompt=len(p), computed=0, blocks=0, sent=False, resumed=False)
                     for i, p in enumerate(prompts)}
        self.params = params if isinstance(params, list) else [params] * len(prompts)
        self.finished, self.preempted = set(), set()

    def preempt(self, req_id):
        self.seqs[req_id].update(computed=0, blocks=0, resumed=True)
        self.preempted.add(req_id)

    def _blocks(self, seq, length):
        count = -(-length // 16) - seq["blocks"]
        seq["blocks"] += max(count, 0)
        first, self.next_block = self.next_block, self.next_block + max(count, 0)
        return list(range(first, self.next_block))

    def schedule(self):
        left, new, scheduled = self.budget, [], {}
        cached = SimpleNamespace(req_ids=[], resumed_req_ids=set(), new_block_ids=[], num_computed_tokens=[], all_token_ids={})
        for req_id, seq in self.seqs.items():
            count = min(left, len(seq["tokens"]) - seq["computed"])
            if count <= 0 or req_id in self.preempted:
                continue
            left -= count
            scheduled[req_id] = count
            blocks = self._blocks(seq, seq["computed"] + count)
            if not seq["sent"]:
                seq["sent"] = True
                new.append(SimpleNamespace(req_id=req_id, prompt_token_ids=seq["tokens"][: seq["prompt"]], block_ids=(blocks,),
                                           sampling_params=self.params[int(req_id)], num_computed_tokens=0))
                continue
            cached.req_ids.append(req_id)
            cached.new_block_ids.append((blocks,) if blocks else None)
            cached.num_computed_tokens.append(seq["computed"])
            if seq["resumed"]:
                seq["resumed"] = False
                cached.resumed_req_ids.add(req_id)
                cached.all_token_ids[req_id] = list(seq["tokens"])
        output = SimpleNamespace(
            finished_req_ids=self.finished, preempted_req_ids=self.preempted, scheduled_new_reqs=new,
            scheduled_cached_reqs=cached, num_scheduled_tokens=scheduled, scheduled_spec_decode_tokens={})
        self.finished, self.preempted = set(), set()
        for req_id, count in scheduled.items():
            self.seqs[req_id]["computed"] += count
        return output

    def commit(self, plan, result):
        for i, token in zip(plan.sampled.tolist(), result.tokens[plan.output_rows].tolist()):
            seq = self.seqs[plan.req_ids[i]]
            seq["tokens"].append(token)
            if len(seq["tokens"]) - seq["prompt"] == NEW:
                self.finished.add(plan.req_ids[i])

    def done(self):
        return all(len(s["tokens"]) - s["prompt"] >= NEW for s in self.seqs.values())

    def answers(self):
        return [s["tokens"][s["prompt"] :] for s in self.seqs.values()]


class StepBuilderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = ingot.Engine(MODEL, device="cpu", max_seqs=4, kv_blocks=200)
        cls.prompts = [[5 + i] * 3 + list(range(20, 50 + 9 * i)) for i in range(4)]
        answers = ingot.LLM(MODEL, device="cpu").generate(cls.prompts, max_tokens=NEW, temperature=0, ignore_eos=True)
        cls.expected = [a.choices[0].token_ids for a in answers]

    def run_all(self, prompts, params, budget=64, preempt_at=()):
        builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(prompts, params, budget)
        plans, step = [], 0
        while not scheduler.done() or scheduler.finished:
            if step in preempt_at:
                running = [r for r, s in scheduler.seqs.items() if s["computed"] and r not in scheduler.finished]
                scheduler.preempt(running[-1])
            for seq in scheduler.seqs.values():
                if len(seq["tokens"]) - seq["prompt"] >= NEW:
                    seq["computed"] = len(seq["tokens"])  # done: nothing left to schedule
            output = scheduler.schedule()
            builder.update(output)
            step += 1
            if not output.num_scheduled_tokens:
                continue
            plan = builder.build(output)
            result = self.engine.run(plan.step)
            builder.submitted(plan)
            builder.apply(plan, result, result.tokens[plan.output_rows])
            scheduler.commit(plan, result)
            plans.append((plan, result))
        self.assertEqual(sorted(builder.free), list(range(self.engine.limits.max_seqs)))  # no row is lost
        return scheduler.answers(), plans

    def test_batched_with_chunked_prefill(self):
        for budget in (16, 40, 64, 200):
            self.assertEqual(self.run_all(self.prompts, make_params(), budget)[0], self.expected, budget)

    def test_preempted_and_resumed(self):
        self.assertEqual(self.run_all(self.prompts, make_params(), preempt_at=(4, 8, 9))[0], self.expected)

    def test_penalties_follow_the_history_over_a_preemption(self):
        params = make_params(repetition_penalty=1.8, presence_penalty=0.5)
        plain = self.run_all(self.prompts, params)[0]
        self.assertNotEqual(plain, self.expected)
        self.assertEqual(self.run_all(self.prompts, params, preempt_at=(6,))[0], plain)

    def test_penalties_are_those_of_each_request(self):
        penalty, plain = make_params(repetition_penalty=1.8), make_params()
        alone = self.run_all(self.prompts, penalty)[0]
        for penalised in ((1, 2), (0,), (0, 3)):
            params = [penalty if i in penalised else plain for i in range(4)]
            wanted = [alone[i] if i in penalised else self.expected[i] for i in range(4)]
            self.run_all([list(range(50, 200, 2))] * 4, penalty)  # leaves the histories of others behind
            self.assertEqual(self.run_all(self.prompts, params)[0], wanted)

    def test_prompt_scores_do_not_depend_on_the_chunks(self):
        scores = []
        for budget in (200, 24):
            _, plans = self.run_all(self.prompts[:1], make_params(prompt_logprobs=2, logprobs=1), budget)
            request = next(part.request for plan, _ in plans for part in plan.parts)
            self.assertTrue(request.prompt_scores.done)
            self.assertEqual(request.prompt_scores.ids[:, 0].tolist(), self.prompts[0][1:])
            scores.append(request.prompt_scores.logprobs)
        self.assertEqual(scores[0].tolist(), scores[1].tolist())

    def test_a_grammar_mask_binds_its_request_alone(self):
        builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(self.prompts[:2], make_params(), 200)
        output = scheduler.schedule()
        builder.update(output)
        plan = builder.build(output)
        bits = np.zeros((1, -(-self.engine.limits.vocab // 32)), np.int32)
        bits[0, 77 // 32] = 1 << (77 % 32)
        builder.set_grammar(plan, SimpleNamespace(structured_output_request_ids=["1"], grammar_bitmask=bits))
        tokens = self.engine.run(plan.step).tokens[plan.output_rows].tolist()
        self.assertEqual(tokens, [self.expected[0][0], 77])

    def test_drafts_are_verified_row_by_row(self):
        """Of the first two guesses are right, the second is held to its mask and wrong, the third has only vLLM's padding."""
        builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(self.prompts[:3], make_params(), 200)
        output = scheduler.schedule()
        builder.update(output)
        plan = builder.build(output)
        result = self.engine.run(plan.step)
        builder.apply(plan, result, result.tokens[plan.output_rows])
        scheduler.commit(plan, result)
        output = scheduler.schedule()
        right, other = self.expected[0], (self.expected[0][3] + 1) % 100
        drafts = output.scheduled_spec_decode_tokens = {"0": [right[1], right[2], other], "1": [77, 5], "2": [-1, -1]}
        for req_id, tokens in drafts.items():
            output.num_scheduled_tokens[req_id] += len(tokens)
        builder.update(output)
        plan = builder.build(output)
        self.assertEqual(plan.step.num_decode_tokens, 1)
        bits = np.full((3, -(-self.engine.limits.vocab // 32)), -1, np.int32)
        bits[0] = 0
        bits[0, 77 // 32] = 1 << (77 % 32)
        builder.set_grammar(plan, SimpleNamespace(structured_output_request_ids=["1"], grammar_bitmask=bits))
        tokens = self.engine.run(plan.step).tokens[plan.output_rows]
        counts = plan.accepted(tokens)
        drawn = {req_id: [] for req_id in drafts}
        for i, token in zip(plan.restricted(counts).sampled.tolist(), tokens[counts].tolist()):
            drawn[plan.req_ids[i]].append(token)
        self.assertEqual(drawn["0"], right[1:4])
        self.assertEqual(drawn["1"][0], 77)
        self.assertEqual(len(drawn["1"]), 2)
        self.assertEqual(drawn["2"], self.expected[2][1:2])

    def test_the_next_step_names_tokens_the_host_does_not_know(self):
        builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(self.prompts[:2], make_params(), 200)
        first = scheduler.schedule()
        builder.update(first)
        plan = builder.build(first)
        tickets = [self.engine.submit(plan.step)]
        builder.submitted(plan)
        for seq in scheduler.seqs.values():
            seq["tokens"].append(-1)  # as an asynchronous scheduler counts it
        second = scheduler.schedule()
        builder.update(second)
        later = builder.build(second)
        self.assertTrue((later.step.token_ids < 0).all())
        tickets.append(self.engine.submit(later.step))
        drawn = [self.engine.wait(ticket).tokens.tolist() for ticket in tickets]
        self.assertEqual([list(pair) for pair in zip(*drawn)], [e[:2] for e in self.expected[:2]])

    def test_a_step_without_the_tokens_it_needs_is_refused(self):
        builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(self.prompts[:1], make_params(), 200)
        builder.update(scheduler.schedule())  # planned, but never built: as if it had failed
        scheduler.seqs["0"]["tokens"].append(-1)
        output = scheduler.schedule()
        builder.update(output)
        with self.assertRaisesRegex(ingot.Error, "no step has drawn"):
            builder.build(output)

    def test_one_structured_request_among_others_asks_for_a_mask(self):
        for which in (0, 1, None):
            builder, scheduler = StepBuilder(self.engine.limits), TinyScheduler(self.prompts[:2], make_params(), 200)
            output = scheduler.schedule()
            for i, request in enumerate(output.scheduled_new_reqs):
                request.sampling_params = make_params(structured_outputs=object() if i == which else None)
            builder.update(output)
            self.assertEqual(builder.build(output).structured, which is not None)

    def test_arrays_that_do_not_fit_are_refused(self):
        ints = lambda *values: np.array(values, np.int32)
        kept = (np.zeros((2, 32), np.int32), np.zeros((2, 2), np.int32), ints(8, 8), ints(-1, -1))
        for lines, counts, computed in ((2, 1, 0), (-1, 1, 0), (0, 0, 0), (0, 1, -1), (0, 33, 0), (1, 4, 30)):
            with self.assertRaises(ingot.Error):
                ingot.Step().gather(*kept, ints(lines), ints(counts), ints(computed), 16)
        with self.assertRaises(ingot.Error):
            ingot.Step().gather(*kept, ints(0, 1), ints(1), ints(0), 16)
        step = ingot.Step()
        sampled, rows, positions = step.gather(*kept, ints(1, 0), ints(1, 3), ints(7, 0), 16)
        self.assertEqual([sampled.tolist(), rows.tolist(), positions.tolist()], [[0], [0], [8]])
        self.assertEqual([step.positions.tolist(), step.seq_lens.tolist()], [[7, 0, 1, 2], [8, 3]])
        owner, owners = np.array([5, 6]), np.array([5, 7])
        ingot.keep(kept[0], kept[2], owner, ints(0, 1), owners, ints(8, 8), ints(77, 88))
        self.assertEqual([kept[0][:, 8].tolist(), kept[2].tolist()], [[77, 0], [9, 8]])  # line 1 has changed hands
        with self.assertRaises(ingot.Error):
            ingot.keep(kept[0], kept[2], owner, ints(2), np.array([5]), ints(0), ints(1))


if __name__ == "__main__":
    unittest.main()
