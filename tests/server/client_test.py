#!/usr/bin/env python3
"""The server as its users see it: through the real OpenAI client, blocking, asynchronous and streaming."""

import asyncio
import math
import unittest

import openai

import server as fixture

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, model=fixture.default_model())
        cls.server.start()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def chat(self, **options):
        options = {"model": "test", "messages": QUESTION, "temperature": 0, "max_tokens": 16, **options}
        return self.client.chat.completions.create(**options)

    def complete(self, **options):
        options = {"model": "test", "prompt": "One, two, three, four,", "temperature": 0, "max_tokens": 8, **options}
        return self.client.completions.create(**options)

    # ---- plain answers ----

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.id for model in models], ["test"])
        self.assertEqual(self.client.models.retrieve("test").id, "test")

    def test_chat(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, "test")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertIn(answer.choices[0].finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertGreater(usage.prompt_tokens, 8)

    def test_completion(self):
        answer = self.complete()
        self.assertEqual(answer.object, "text_completion")
        self.assertIn("five", answer.choices[0].text)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 8)

    def test_token_ids_as_prompt(self):
        text = self.complete().choices[0].text
        ids = self.client.post("../tokenize", cast_to=object,
                               body={"model": "test", "prompt": "One, two, three, four,"})["tokens"]
        self.assertEqual(self.complete(prompt=ids).choices[0].text, text)

    def test_several_prompts(self):
        prompts = ["One, two, three,", "The sky is", "Monday, Tuesday,"]
        together = self.complete(prompt=prompts)
        self.assertEqual([choice.index for choice in together.choices], [0, 1, 2])
        for prompt, choice in zip(prompts, together.choices):
            self.assertEqual(self.complete(prompt=prompt).choices[0].text, choice.text)

    def test_echo(self):
        self.assertTrue(self.complete(echo=True).choices[0].text.startswith("One, two, three, four,"))

    def test_max_completion_tokens(self):
        answer = self.client.chat.completions.create(model="test", messages=QUESTION, max_completion_tokens=3, temperature=0,
                                                     extra_body={"ignore_eos": True})
        self.assertEqual(answer.usage.completion_tokens, 3)
        self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_content_parts(self):
        parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
        self.assertEqual(self.chat(messages=parts).choices[0].message.content, self.chat().choices[0].message.content)

    # ---- sampling ----

    def test_seed(self):
        def sample(seed):
            return self.chat(temperature=1.0, seed=seed, max_tokens=24, messages=[{"role": "user", "content": "Tell me a story."}])

        one, again, other = (sample(seed).choices[0].message.content for seed in (7, 7, 8))
        self.assertEqual(one, again)
        self.assertNotEqual(one, other)

    def test_n(self):
        answer = self.chat(n=3, temperature=1.0, seed=1, messages=[{"role": "user", "content": "Tell me a story."}])
        self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
        self.assertGreater(len({choice.message.content for choice in answer.choices}), 1)
        greedy = self.chat(n=2)
        self.assertEqual(greedy.choices[0].message.content, greedy.choices[1].message.content)
        self.assertEqual(greedy.usage.completion_tokens, 2 * self.chat().usage.completion_tokens)

    def test_logit_bias(self):
        ids = self.client.post("../tokenize", cast_to=object, body={"model": "test", "prompt": " five", "add_special_tokens": False})
        banned = {str(ids["tokens"][0]): -100}
        self.assertNotIn(" five", self.complete(logit_bias=banned).choices[0].text)

    def test_extra_parameters(self):
        forced = self.complete(extra_body={"min_tokens": 8, "ignore_eos": True, "top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0})
        self.assertEqual(forced.usage.completion_tokens, 8)
        allowed = self.complete(extra_body={"allowed_token_ids": [5, 6], "ignore_eos": True}, temperature=1.0)
        ids = self.client.post("../detokenize", cast_to=object, body={"model": "test", "tokens": [5, 6]})
        self.assertTrue(set(allowed.choices[0].text) <= set(ids["prompt"]))

    # ---- stop ----

    def test_stop_string(self):
        whole = self.complete(max_tokens=24).choices[0].text
        cut = self.complete(max_tokens=24, stop=[" six"])
        self.assertEqual(cut.choices[0].text, whole.split(" six")[0])
        self.assertEqual(cut.choices[0].finish_reason, "stop")
        kept = self.complete(max_tokens=24, stop=" six", extra_body={"include_stop_str_in_output": True})
        self.assertEqual(kept.choices[0].text, whole.split(" six")[0] + " six")

    def test_stop_string_across_tokens_while_streaming(self):
        whole = self.complete(max_tokens=24).choices[0].text
        stop = whole[9:14]  # begins and ends in the middle of words
        parts = [chunk.choices[0].text for chunk in self.complete(max_tokens=24, stop=stop, stream=True) if chunk.choices]
        self.assertEqual("".join(parts), whole[:whole.index(stop)])

    def test_stop_token_ids(self):
        ids = self.client.post("../tokenize", cast_to=object, body={"model": "test", "prompt": " six", "add_special_tokens": False})
        answer = self.complete(max_tokens=24, extra_body={"stop_token_ids": ids["tokens"][:1]})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertLess(answer.usage.completion_tokens, 24)

    # ---- logprobs ----

    def test_chat_logprobs(self):
        entries = self.chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        text = "".join(entry.token for entry in entries)
        self.assertIn("Paris", text)
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 3)
            best = max(entry.top_logprobs, key=lambda top: top.logprob)
            self.assertEqual(best.token, entry.token)  # greedy
            self.assertAlmostEqual(best.logprob, entry.logprob, places=4)
            self.assertLessEqual(sum(math.exp(top.logprob) for top in entry.top_logprobs), 1.0001)
            self.assertEqual(bytes(entry.bytes).decode(errors="replace"), entry.token)

    def test_completion_logprobs(self):
        logprobs = self.complete(logprobs=2).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 8)
        self.assertEqual(len(logprobs.token_logprobs), 8)
        self.assertTrue(all(value <= 0 for value in logprobs.token_logprobs))
        self.assertTrue(all(2 <= len(top) <= 3 for top in logprobs.top_logprobs))

    def test_logprobs_while_streaming(self):
        whole = self.chat(logprobs=True, top_logprobs=1).choices[0].logprobs.content
        stream = self.chat(logprobs=True, top_logprobs=1, stream=True)
        parts = [entry for chunk in stream if chunk.choices and chunk.choices[0].logprobs
                 for entry in chunk.choices[0].logprobs.content or []]
        self.assertEqual([entry.token for entry in parts], [entry.token for entry in whole])

    # ---- streaming ----

    def test_stream_equals_whole(self):
        whole = self.chat(max_tokens=40, messages=[{"role": "user", "content": "Count from one to ten."}])
        chunks = list(self.chat(max_tokens=40, messages=[{"role": "user", "content": "Count from one to ten."}], stream=True,
                                stream_options={"include_usage": True}))
        self.assertEqual("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
                         whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason],
                         [whole.choices[0].finish_reason])
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))

    def test_stream_without_usage(self):
        self.assertTrue(all(chunk.usage is None for chunk in self.chat(stream=True)))

    def test_stream_of_several_choices(self):
        whole = self.chat(n=2, temperature=1.0, seed=3, max_tokens=12)
        texts = ["", ""]
        for chunk in self.chat(n=2, temperature=1.0, seed=3, max_tokens=12, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        self.assertEqual(texts, [choice.message.content for choice in whole.choices])

    def test_stream_arrives_bit_by_bit(self):
        before = self.server.metrics()["vllm:generation_tokens_total"]
        with self.complete(max_tokens=4000, stream=True, extra_body={"ignore_eos": True}) as stream:
            for _, chunk in zip(range(16), stream):
                self.assertTrue(chunk.choices)
            self.assertLess(self.server.metrics()["vllm:generation_tokens_total"] - before, 3500, "some is still to be said")
        self.server.wait_idle()

    def test_async(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0) as client:
                async def one(index):
                    stream = await client.completions.create(model="test", prompt=f"{index}, {index + 1}, {index + 2},", temperature=0,
                                                             max_tokens=12, stream=index % 2 == 0)
                    if index % 2:
                        return stream.choices[0].text
                    return "".join([chunk.choices[0].text async for chunk in stream if chunk.choices])

                return await asyncio.gather(*(one(index) for index in range(12)))

        together = asyncio.run(run())
        for index, text in enumerate(together):
            self.assertEqual(self.complete(prompt=f"{index}, {index + 1}, {index + 2},", max_tokens=12).choices[0].text, text)

    # ---- going away ----

    def test_closed_stream_is_cancelled(self):
        stream = self.complete(prompt="Once upon a time", max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
        for index, _ in enumerate(stream):
            if index == 5:
                break
        self.assertEqual(self.server.metrics()["vllm:num_requests_running"], 1)
        stream.close()
        self.assertEqual(self.server.wait_idle()["vllm:kv_cache_usage_perc"], 0)

    def test_timeout_of_the_client(self):
        with self.assertRaises(openai.APITimeoutError):
            self.complete(prompt="Once upon a time", max_tokens=4000, timeout=0.5, extra_body={"ignore_eos": True})
        self.server.wait_idle()

    # ---- errors ----

    def test_wrong_parameters(self):
        for options in ({"temperature": -1}, {"temperature": "warm"}, {"max_tokens": 0}, {"n": 0}, {"top_p": 2}, {"messages": []},
                        {"messages": "hello"}, {"stop": [1]}, {"logprobs": True, "top_logprobs": 500}, {"seed": "x"},
                        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"minLength": 2, "maxLength": 1, "type": "string"}}}},
                        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, {"tool_choice": "required"},
                        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]}):
            with self.subTest(options=options):
                with self.assertRaises(openai.BadRequestError) as caught:
                    self.chat(**options)
                error = caught.exception
                self.assertEqual(error.type, "invalid_request_error")
                name = next(name for name in options if name != "logprobs")
                self.assertTrue(name in (error.param or "") or name in error.message, f"{name}: {error.param}: {error.message}")

    def test_harmless_parameters(self):
        answer = self.chat(user="someone", metadata={"a": "b"}, store=False, tools=[], response_format={"type": "text"},
                           logit_bias=None, stop=None, seed=None, top_p=None, presence_penalty=0, parallel_tool_calls=True,
                           service_tier="auto")
        self.assertIn("Paris", answer.choices[0].message.content)

    def test_unknown_model(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat(model="gpt-17")
        self.assertIn("gpt-17", caught.exception.message)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-17")

    def test_prompt_too_long(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.complete(prompt=[100] * 9000)
        self.assertIn("9000", caught.exception.message.replace(",", ""))
        self.assertIn("8192", caught.exception.message.replace(",", ""))

    def test_errors_have_the_shape(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        body = caught.exception.body
        self.assertEqual(set(body), {"message", "type", "param", "code"})
        self.assertEqual(body["param"], "temperature")

    def test_request_id(self):
        raw = self.client.chat.completions.with_raw_response.create(model="test", messages=QUESTION, max_tokens=2,
                                                                    extra_headers={"X-Request-Id": "my-own-id-77"})
        self.assertEqual(raw.headers["x-request-id"], "my-own-id-77")
        self.assertTrue(self.server.logged("my-own-id-77"))
        self.assertTrue(self.client.chat.completions.with_raw_response.create(model="test", messages=QUESTION,
                                                                              max_tokens=2).headers["x-request-id"])

    def test_tokenize_and_back(self):
        text = "Grüße, 世界! 🙂"
        tokens = self.client.post("../tokenize", cast_to=object, body={"model": "test", "prompt": text})
        self.assertEqual(tokens["count"], len(tokens["tokens"]))
        self.assertGreater(tokens["max_model_len"], 0)
        self.assertEqual(self.client.post("../detokenize", cast_to=object, body={"model": "test", "tokens": tokens["tokens"]})["prompt"],
                         text)


if __name__ == "__main__":
    fixture.main()
