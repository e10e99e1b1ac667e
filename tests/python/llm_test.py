"""LLM and AsyncLLM as their users meet them: parameters, results, conversations, streams, progress, closing."""

import asyncio
import dataclasses
import inspect
import json
import pathlib
import signal
import sys
import tempfile
import threading
import time
import typing
import unittest

import ingot
from ingot import _ingot
from ingot.params import SamplingOptions

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "server"))
import tiny_model  # noqa: E402
from server import SOAK  # noqa: E402

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}


def tiny(kind=ingot.LLM, **options):
    folder = tempfile.TemporaryDirectory()
    return kind(tiny_model.make(folder.name), device="cpu", **{"max_seqs": 8, **options}), folder


def wait_until_idle(test, llm):
    deadline = time.monotonic() + 60
    while llm.stats()["running"] and time.monotonic() < deadline:
        time.sleep(0.01)
    test.assertEqual(llm.stats()["running"], 0)
    test.assertEqual(llm.check_integrity(), [])


class ParamsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm, cls.folder = tiny()
        cls.addClassCleanup(cls.folder.cleanup)

    def test_a_wrong_name_is_a_type_error_with_the_nearest_right_one(self):
        for call, wrong, right in (
            (lambda **o: self.llm.generate("x", **o), "temprature", "temperature"),
            (lambda **o: self.llm.stream("x", **o), "max_token", "max_tokens"),
            (lambda **o: self.llm.chat(QUESTION, **o), "steam", "stream"),
            (lambda **o: self.llm.chat(QUESTION, **o), "tool", "tools"),
            (ingot.SamplingParams, "topp", "top_p"),
        ):
            with self.assertRaisesRegex(TypeError, f"unexpected keyword argument '{wrong}'; did you mean '{right}'\\?"):
                call(**{wrong: 1})
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'zzz'$"):
            self.llm.generate("x", zzz=1)

    def test_a_value_of_another_type_names_the_parameter(self):
        with self.assertRaisesRegex(TypeError, "temperature must be Optional\\[float\\], not 'hot'"):
            self.llm.generate("x", temperature="hot")
        with self.assertRaisesRegex(ingot.Error, "top_p"):
            self.llm.generate("x", top_p=2)

    def test_every_parameter_is_spelled_out_with_the_default_of_the_native_code(self):
        native = _ingot.Request(self.llm._core, [1])
        fields = {field.name: field for field in dataclasses.fields(ingot.SamplingParams)}
        self.assertEqual(list(fields), list(typing.get_type_hints(SamplingOptions)))
        for method in (ingot.LLM.generate, ingot.LLM.stream, ingot.LLM.chat, ingot.AsyncLLM.generate, ingot.AsyncLLM.chat):
            self.assertLessEqual(set(fields), set(inspect.signature(method).parameters))
        for name, field in fields.items():
            if field.default in (None, dataclasses.MISSING) or name == "structured":
                continue
            value = getattr(native, name)
            self.assertEqual(tuple(value) if isinstance(value, list) else value, field.default, name)
        bound = {name for name in dir(_ingot.Request) if not name.startswith("_")} - {"thinking_budget", "embed"}  # of chats, of embed()
        self.assertEqual(bound | {"response_format"}, set(fields))

    def test_what_is_not_said_is_as_the_makers_advise(self):
        with ingot.LLM(device="cpu", max_seqs=1, max_model_len=256) as llm:
            self.assertAlmostEqual(_ingot.Request(llm._core, [1]).temperature, 0.2)
        self.assertEqual(_ingot.Request(self.llm._core, [1]).temperature, 1)

    def test_sampling_params_for_all_prompts_or_for_each(self):
        greedy = ingot.SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
        both = self.llm.generate(["a", "b"], greedy)
        self.assertEqual([len(out.outputs[0].token_ids) for out in both], [4, 4])
        longer = self.llm.generate("a", greedy, max_tokens=6).outputs[0].token_ids
        self.assertEqual(longer[:4], both[0].outputs[0].token_ids)
        self.assertEqual(len(longer), 6)
        each = self.llm.generate(["a", "b"], [greedy, dataclasses.replace(greedy, max_tokens=2)])
        self.assertEqual([len(out.outputs[0].token_ids) for out in each], [4, 2])
        with self.assertRaisesRegex(ValueError, "1 sampling_params for 2 prompts"):
            self.llm.generate(["a", "b"], [greedy])

    def test_parameters_reach_the_orchestrator(self):
        options = dict(temperature=0, max_tokens=12, ignore_eos=True)
        plain = self.llm.generate("abc", **options).outputs[0]
        biased = self.llm.generate("abc", logit_bias={5: 100}, **options).outputs[0]
        self.assertEqual(biased.token_ids, [5] * 12)
        self.assertNotIn(plain.token_ids[0], self.llm.generate("abc", logit_bias={plain.token_ids[0]: -100}, **options).outputs[0].token_ids)
        self.assertEqual(set(self.llm.generate("abc", allowed_token_ids=[7], **options).outputs[0].token_ids), {7})
        stopped = self.llm.generate("abc", stop_token_ids=[plain.token_ids[2]], **options).outputs[0]
        self.assertEqual((stopped.finish_reason, stopped.stop_reason), ("stop", plain.token_ids[2]))
        beams = self.llm.generate("abc", use_beam_search=True, n=2, best_of=3, **options).outputs
        self.assertEqual([beam.index for beam in beams], [0, 1])
        late = self.llm.generate("abc", max_tokens=2000, ignore_eos=True, timeout=1e-6).outputs[0]
        self.assertEqual(late.finish_reason, "timeout")
        seeds = [self.llm.generate("abc", seed=seed, temperature=1, max_tokens=12).outputs[0].token_ids for seed in (-1, -1, 3)]
        self.assertEqual(seeds[0], seeds[1])
        self.assertNotEqual(seeds[0], seeds[2])


class ResultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = ingot.LLM(device="cpu", max_seqs=8, max_model_len=2048, max_step_tokens=128)
        cls.addClassCleanup(cls.llm.close)

    def tearDown(self):
        wait_until_idle(self, self.llm)

    def test_the_shape_that_vllm_has(self):
        out = self.llm.generate("The capital of France is", ingot.SamplingParams(temperature=0, max_tokens=4, logprobs=1))
        self.assertEqual(out.prompt, "The capital of France is")
        self.assertEqual(out.prompt_token_ids, self.llm.tokenize(out.prompt, add_special=True))
        first = out.outputs[0]
        self.assertIn("Paris", first.text)
        self.assertEqual(str(out), first.text)
        self.assertEqual(self.llm.detokenize(first.token_ids), first.text)
        self.assertEqual((first.index, first.finish_reason, first.stop_reason), (0, "length", None))
        entry = first.logprobs[0][first.token_ids[0]]
        self.assertEqual((entry.rank, entry.decoded_token), (1, " Paris"))
        self.assertLess(entry.logprob, 0)
        self.assertIs(out.choices, out.outputs)
        stopped = self.llm.generate(out.prompt, temperature=0, max_tokens=9, stop="Paris").outputs[0]
        self.assertEqual((stopped.text, stopped.finish_reason, stopped.stop_reason), (" ", "stop", "Paris"))
        kept = self.llm.generate(out.prompt, temperature=0, max_tokens=9, stop="Paris", include_stop_str_in_output=True)
        self.assertEqual(kept.text, " Paris")

    def test_a_chat_runs_to_the_end_of_the_answer(self):
        long = self.llm.chat([{"role": "user", "content": "Say hello."}], temperature=0).outputs[0]
        self.assertEqual(long.finish_reason, "stop")
        self.assertGreater(len(long.token_ids), 16)
        out = self.llm.chat(QUESTION, temperature=0)
        self.assertIn("Paris", str(out))
        self.assertEqual(out.outputs[0].message(), {"role": "assistant", "content": out.text})
        self.assertIn("<|im_start|>user\nWhat is the capital of France?", out.prompt)
        self.assertEqual(self.llm.chat(QUESTION, max_tokens=2).outputs[0].finish_reason, "length")

    def test_conversations_side_by_side(self):
        other = [{"role": "user", "content": "Say hello."}]
        both = self.llm.chat([QUESTION, other], temperature=0, max_tokens=12)
        alone = [self.llm.chat(messages, temperature=0, max_tokens=12) for messages in (QUESTION, other)]
        self.assertEqual([out.text for out in both], [out.text for out in alone])
        for wrong in ("Hello", [], {"role": "user"}):
            with self.assertRaisesRegex(ValueError, "messages must be a conversation"):
                self.llm.chat(wrong)
        with self.assertRaisesRegex(ValueError, "one conversation"):
            self.llm.chat([QUESTION, other], stream=True)

    def test_a_chat_streams(self):
        whole = self.llm.chat(QUESTION, temperature=0)
        deltas = list(self.llm.chat(QUESTION, temperature=0, stream=True))
        self.assertGreater(len(deltas), 3)
        self.assertEqual("".join(map(str, deltas)), str(whole))
        self.assertEqual([t for d in deltas for t in d.token_ids], whole.outputs[0].token_ids)
        self.assertEqual([d.finish_reason for d in deltas], [None] * (len(deltas) - 1) + ["stop"])

    def test_the_last_message_goes_on(self):
        begun = [*QUESTION, {"role": "assistant", "content": "The capital of France is"}]
        out = self.llm.chat(begun, temperature=0, max_tokens=3, continue_final_message=True)
        self.assertTrue(out.prompt.endswith("The capital of France is"), out.prompt)
        self.assertIn("Paris", out.text)

    def test_calls_whole_and_streamed(self):
        options = dict(tools=[ADD], tool_format="hermes", tool_choice="add", max_tokens=80, temperature=0)
        choice = self.llm.chat(QUESTION, **options).outputs[0]
        self.assertEqual((choice.finish_reason, choice.content), ("tool_calls", ""))
        self.assertRegex(choice.text, r'(?s)^<tool_call>\s*\{"name": "add", "arguments": \{.*\}\}\s*</tool_call>$')
        function = choice.tool_calls[0]["function"]
        self.assertEqual(function["name"], "add")
        self.assertIsNone(choice.message()["content"])
        deltas = list(self.llm.chat(QUESTION, stream=True, **options))
        calls = [call for delta in deltas for call in delta.tool_calls]
        self.assertEqual((calls[0]["index"], calls[0]["type"], calls[0]["function"]["name"]), (0, "function", "add"))
        self.assertRegex(calls[0]["id"], "^call_")
        self.assertEqual(json.loads("".join(call["function"]["arguments"] for call in calls)), json.loads(function["arguments"]))
        self.assertEqual(deltas[-1].finish_reason, "tool_calls")
        cut = self.llm.chat(QUESTION, **{**options, "max_tokens": 8}).outputs[0]
        self.assertEqual(cut.finish_reason, "length")

    def test_progress_while_prompts_are_read(self):
        prompts = [[5 + i] * 300 for i in range(2)]
        told = []
        self.llm.generate(prompts, max_tokens=1, progress=lambda read, total: told.append((read, total)))
        self.assertEqual({total for _, total in told}, {600})
        self.assertEqual([read for read, _ in told], sorted({read for read, _ in told}))
        self.assertEqual(told[-1][0], 600)
        self.assertGreater(len(told), 1)
        told.clear()
        deltas = list(self.llm.chat(QUESTION, stream=True, max_tokens=2, progress=lambda *now: told.append(now)))
        self.assertTrue(deltas)
        self.assertEqual(told[-1][0], told[-1][1])

        def give_up(read, total):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            self.llm.generate([9] * 900, max_tokens=400, progress=give_up)

    def test_ctrl_c_ends_at_once(self):
        class Pressed(KeyboardInterrupt):
            pass

        pressed = []

        def press(*_):
            pressed.append(time.monotonic())
            raise Pressed

        old = signal.signal(signal.SIGALRM, press)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        for prompt in ([7] * 1900, [[8, i] for i in range(8)]):  # while it reads; while it writes
            before = self.llm.stats()["generation_tokens"]
            with self.assertRaises(Pressed):
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                self.llm.generate(prompt, max_tokens=1900, temperature=0, ignore_eos=True)
            if SOAK:
                self.assertLess(time.monotonic() - pressed.pop(), 0.2)
            wait_until_idle(self, self.llm)
            whole = 1900 * (len(prompt) if isinstance(prompt[0], list) else 1)
            self.assertLess(self.llm.stats()["generation_tokens"] - before, whole / 2)

    def test_more_prompts_than_may_wait(self):
        llm, folder = tiny(max_seqs=64)
        self.addCleanup(folder.cleanup)
        outs = llm.generate([[5, 6, 7]] * 1500, max_tokens=1, temperature=0)
        self.assertEqual(len({tuple(out.outputs[0].token_ids) for out in outs}), 1)


class EmbedTest(unittest.TestCase):
    def test_texts_become_vectors_of_length_one(self):
        llm, folder = tiny(embeddings=True, pooling="mean")
        with folder, llm:
            texts = ["a cat", "a dog", llm.tokenize("a cat", add_special=True)]
            cat, dog, ids = llm.embed(texts)
            self.assertEqual(cat, ids)
            self.assertEqual(llm.embed("a cat"), cat)
            self.assertNotEqual(cat, dog)
            self.assertAlmostEqual(sum(x * x for x in cat), 1, places=5)
            front = llm.embed("a cat", dimensions=8)
            self.assertAlmostEqual(sum(x * x for x in front), 1, places=5)
            for whole, cut in zip(cat[1:8], front[1:]):
                self.assertAlmostEqual(cut / front[0], whole / cat[0], places=4)
            with self.assertRaisesRegex(ingot.Error, "dimensions is 9999"):
                llm.embed("a cat", dimensions=9999)
            self.assertEqual(llm.embed([]), [])

    def test_a_model_that_was_not_made_for_it_says_so(self):
        llm, folder = tiny()
        with folder, llm, self.assertRaisesRegex(ingot.Error, "was not made for embeddings"):
            llm.embed("a cat")

    def test_awaited_they_are_the_same(self):
        async def ask():
            llm, folder = tiny(ingot.AsyncLLM, embeddings=True)
            with folder:
                async with llm:
                    one, many = await asyncio.gather(llm.embed("a cat"), llm.embed(["a dog", "a cat"]))
                    self.assertEqual(one, many[1])

        asyncio.run(ask())


class PrefixTest(unittest.TestCase):
    def test_a_later_model_finds_what_an_earlier_one_computed(self):
        with tempfile.TemporaryDirectory() as place:
            prompt, texts, hits = "You are a careful clerk. " * 8, [], []
            for _ in range(2):
                llm, folder = tiny(prefix_dir=pathlib.Path(place) / "cache", prefix_ram=1 << 20, prefix_dir_bytes=1 << 24)
                texts.append(llm.generate(prompt, max_tokens=8, temperature=0).outputs[0].text)
                hits.append(llm.stats()["prefix_disk_hits"])
                llm.close()
                folder.cleanup()
            self.assertEqual(texts[0], texts[1])
            self.assertEqual(hits[0], 0)
            self.assertGreater(hits[1], 100)


class PackedTest(unittest.TestCase):
    def test_weights_are_kept_as_they_are_packed(self):
        with tempfile.TemporaryDirectory() as place:
            packed, texts, files = pathlib.Path(place) / "packed", [], []
            model = tiny_model.make(pathlib.Path(place) / "model")
            for use in ("read", "read", "map"):
                with ingot.LLM(model, device="cpu", packed_cache=use, packed_cache_dir=packed, packed_cache_bytes=1 << 30) as llm:
                    texts.append(llm.generate("abab", max_tokens=8, temperature=0).outputs[0].text)
                files.append([file.stat().st_ino for file in packed.glob("*.packed")])
            self.assertEqual(len(set(texts)), 1)
            self.assertEqual(len(files[0]), 1)
            self.assertEqual(files[1:], files[:1] * 2, "written once")
            with self.assertRaisesRegex(ingot.Error, "must be off, read or map"):
                ingot.LLM(model, packed_cache="always")


class SpeculationTest(unittest.TestCase):
    def test_answers_are_the_same_with_and_without_guesses(self):
        def texts(**options):
            llm, folder = tiny(**options)
            with folder, llm:
                # Two tokens to choose from: there is much to guess, and much of it is wrong.
                ids = llm.tokenize("ab")[:2]
                outs = [llm.generate("abab" * 8, max_tokens=40, seed=i, temperature=1.0, ignore_eos=True, allowed_token_ids=ids) for i in range(4)]
                stats = llm.stats()
                unguessed = llm.generate("abab" * 8, max_tokens=8, seed=1, allowed_token_ids=ids, speculate=False)
                self.assertEqual(llm.stats()["draft_tokens"], stats["draft_tokens"])
                return [*(str(out) for out in outs), str(unguessed)], stats

        plain, without = texts(speculate="off")
        self.assertEqual((without["draft_tokens"], without["accepted_tokens"]), (0, 0))
        guessed, stats = texts(speculate="lookup")
        self.assertEqual(guessed, plain)
        with tempfile.TemporaryDirectory() as folder:
            drafted, _ = texts(draft_model=tiny_model.make(folder))
        self.assertEqual(drafted, plain)

    def test_a_greedy_answer_that_repeats_itself_is_guessed(self):
        llm, folder = tiny(speculate="lookup")
        with folder, llm:
            ids = llm.tokenize("a")[:1]
            for _ in range(20):  # while the machine is busy waiting for a token may cost more than guesses save
                before = llm.stats()
                llm.generate("aaaa", max_tokens=200, temperature=0, ignore_eos=True, allowed_token_ids=ids)
                stats = llm.stats()
                if stats["accepted_tokens"] > before["accepted_tokens"]:
                    break
            self.assertGreater(stats["accepted_tokens"], 0)
            self.assertLess(stats["steps"] - before["steps"], 200)

    def test_what_does_not_go_together_is_refused(self):
        for options, words in (
            ({"speculate": "draft"}, "give --draft-model"),
            ({"speculate": "medusa"}, "MTP layers .mtp. are run here"),
            ({"speculate": "mtp"}, "has no MTP layers"),
            ({"speculate": "eagle3"}, "--draft-model"),
            ({"speculate": "perhaps"}, "must be auto, off, lookup, suffix, draft or mtp"),
        ):
            with self.assertRaisesRegex(ingot.Error, words):
                tiny(**options)


class CloseTest(unittest.TestCase):
    def test_what_is_closed_says_so(self):
        llm, folder = tiny()
        self.addCleanup(folder.cleanup)
        with llm as same:
            self.assertIs(same, llm)
            llm.generate("x", max_tokens=1)
        llm.close()
        for call in (lambda: llm.generate("x"), lambda: llm.chat(QUESTION), llm.stats, lambda: llm.tokenize("x"), lambda: llm.limits):
            with self.assertRaisesRegex(ingot.Error, "closed"):
                call()

    def test_closing_ends_what_other_threads_wait_for(self):
        llm, folder = tiny()
        self.addCleanup(folder.cleanup)
        results = []
        thread = threading.Thread(target=lambda: results.append(llm.generate("x", max_tokens=2000, ignore_eos=True)))
        thread.start()
        deadline = time.monotonic() + 60
        while not llm.stats()["running"] and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.001)
        llm.close()
        thread.join(60)
        self.assertIn(results[0].outputs[0].finish_reason, ("cancelled", "length"))


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm, cls.folder = tiny(ingot.AsyncLLM)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.sync, other = tiny()
        cls.addClassCleanup(other.cleanup)

    async def idle(self):
        for _ in range(2000):
            if not self.llm.stats()["running"]:
                break
            await asyncio.sleep(0.01)
        self.assertEqual(self.llm.stats()["running"], 0)
        self.assertEqual(self.llm.check_integrity(), [])

    async def test_many_at_once_as_one_at_a_time(self):
        options = dict(max_tokens=16, temperature=0, ignore_eos=True)
        prompts = [f"prompt {i}" for i in range(24)]
        expected = self.sync.generate(prompts, **options)
        outs = await asyncio.gather(*(self.llm.generate(prompt, **options) for prompt in prompts))
        self.assertEqual([out.text for out in outs], [out.text for out in expected])
        together = await self.llm.generate(prompts, **options)
        self.assertEqual([out.text for out in together], [out.text for out in expected])

    async def test_streams_side_by_side(self):
        async def read(prompt):
            return [delta async for delta in self.llm.stream(prompt, max_tokens=40, temperature=0, ignore_eos=True)]

        streams = await asyncio.gather(*(read(f"s{i}") for i in range(4)))
        for number, deltas in enumerate(streams):
            whole = await self.llm.generate(f"s{number}", max_tokens=40, temperature=0, ignore_eos=True)
            self.assertEqual("".join(delta.text for delta in deltas), whole.text)
            self.assertEqual(deltas[-1].finish_reason, "length")

    async def test_chats(self):
        options = dict(max_tokens=20, temperature=0, ignore_eos=True)
        whole = await self.llm.chat(QUESTION, **options)
        self.assertEqual(str(whole), str(self.sync.chat(QUESTION, **options)))
        pieces = [str(delta) async for delta in await self.llm.chat(QUESTION, stream=True, **options)]
        self.assertEqual("".join(pieces), str(whole))
        both = await self.llm.chat([QUESTION, QUESTION], **options)
        self.assertEqual([str(out) for out in both], [str(whole)] * 2)
        told = []
        await self.llm.generate([5] * 300, max_tokens=1, progress=lambda *now: told.append(now))
        self.assertEqual(told[-1], (300, 300))
        with self.assertRaisesRegex(TypeError, "did you mean 'stream'"):
            await self.llm.chat(QUESTION, strem=True)

    async def test_a_cancelled_task_cancels_its_request(self):
        endless = dict(prompts=["a"] * 64, max_tokens=2000, ignore_eos=True)  # minutes: longer than this thread may be held up
        task = asyncio.create_task(self.llm.generate(**endless))
        while not self.llm.stats()["running"]:
            await asyncio.sleep(0.001)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.idle()
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(self.llm.generate(**endless), 0.02)
        await self.idle()

    async def test_leaving_a_stream_cancels_it(self):
        stream = self.llm.stream("d", max_tokens=2000, ignore_eos=True)
        async for _ in stream:
            break
        await stream.aclose()
        await self.idle()

    async def test_the_loop_goes_on_meanwhile(self):
        ticks = 0
        task = asyncio.create_task(self.llm.generate(["a"] * 64, max_tokens=2000, ignore_eos=True))  # minutes
        while ticks < 100 and not task.done():
            await asyncio.sleep(0.001)
            ticks += 1
        self.assertEqual(ticks, 100)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await self.idle()

    async def test_closing_wakes_what_waits(self):
        llm, folder = tiny(ingot.AsyncLLM)
        self.addCleanup(folder.cleanup)
        async with llm:
            task = asyncio.create_task(llm.generate(["e"] * 64, max_tokens=2000, ignore_eos=True))
            while not llm.stats()["running"]:
                await asyncio.sleep(0.001)
        for out in await asyncio.wait_for(task, 60):
            self.assertIn(out.outputs[0].finish_reason, ("cancelled", "length"))
        with self.assertRaisesRegex(ingot.Error, "closed"):
            await llm.generate("f")


class LoopsTest(unittest.TestCase):
    def test_one_model_serves_one_loop_after_another(self):
        llm, folder = tiny(ingot.AsyncLLM)
        self.addCleanup(folder.cleanup)
        texts = {asyncio.run(llm.generate("x", max_tokens=8, temperature=0)).text for _ in range(3)}
        self.assertEqual(len(texts), 1)


if __name__ == "__main__":
    unittest.main()
