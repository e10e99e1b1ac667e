#!/usr/bin/env python3
"""Structured output through the real OpenAI client: parse(), response_format, vLLM's and llama-server's names; streaming, errors, company."""

import concurrent.futures
import enum
import json
import re
import unittest

import jsonschema
import openai
import pydantic

import server as fixture

QUESTION = [{"role": "user", "content": "Name a city with its country and say whether it is a capital."}]


class Size(enum.Enum):
    small = "small"
    large = "large"


class City(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=20)
    country: str = pydantic.Field(max_length=20)
    capital: bool
    size: Size


SCHEMA = City.model_json_schema()


class StructuredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, "--max-model-len", 2048, model=fixture.default_model())
        cls.server.start()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=120)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def chat(self, **options):
        options = {"model": "test", "messages": QUESTION, "seed": 3, "max_tokens": 120, **options}
        return self.client.chat.completions.create(**options)

    def text(self, **options):
        return self.chat(**options).choices[0].message.content

    # ---- OpenAI's own ----

    def test_parse(self):
        answer = self.client.chat.completions.parse(model="test", messages=QUESTION, response_format=City, seed=3, max_tokens=120)
        city = answer.choices[0].message.parsed
        self.assertIsInstance(city, City)
        self.assertEqual(list(json.loads(answer.choices[0].message.content)), ["name", "country", "capital", "size"], "strict: in order")
        self.assertEqual(answer.choices[0].finish_reason, "stop")

    def test_parse_streamed(self):
        whole = self.client.chat.completions.parse(model="test", messages=QUESTION, response_format=City, seed=3, max_tokens=120)
        with self.client.chat.completions.stream(model="test", messages=QUESTION, response_format=City, seed=3, max_tokens=120) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion()
        self.assertEqual(streamed.choices[0].message.parsed, whole.choices[0].message.parsed)

    def test_json_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
        answer = self.chat(response_format=form, n=3, temperature=1)
        for choice in answer.choices:
            if choice.finish_reason == "stop":
                jsonschema.validate(json.loads(choice.message.content), SCHEMA)
        self.assertEqual(len({choice.message.content for choice in answer.choices}), 3)
        pieces = [chunk.choices[0].delta.content or "" for chunk in self.chat(response_format=form, stream=True) if chunk.choices]
        self.assertEqual("".join(pieces), self.text(response_format=form))

    def test_json_object(self):
        answer = self.chat(response_format={"type": "json_object"}, max_tokens=200, temperature=0)
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)
        self.assertTrue(answer.choices[0].message.content.startswith("{"))

    def test_completions_and_logprobs(self):
        answer = self.client.completions.create(model="test", prompt="A date:", max_tokens=30, seed=1, logprobs=1,
                                                extra_body={"guided_regex": r"20[0-9]{2}-(0[1-9]|1[0-2])-[0-2][1-8]"})
        self.assertRegex(answer.choices[0].text, r"^20\d\d-\d\d-\d\d$")
        self.assertEqual(len(answer.choices[0].logprobs.tokens), answer.usage.completion_tokens)
        plain = self.client.completions.create(model="test", prompt="A date:", max_tokens=30, seed=1,
                                               extra_body={"guided_regex": r"20[0-9]{2}-(0[1-9]|1[0-2])-[0-2][1-8]"})
        self.assertEqual(plain.choices[0].text, answer.choices[0].text, "drawn or jumped over")
        self.assertEqual(plain.usage.completion_tokens, answer.usage.completion_tokens)

    # ---- other servers' names ----

    def test_other_names(self):
        answers = ["yes, gladly", "no"]
        gbnf = 'root ::= "<" [a-z]+ ">"'
        tag = {"structures": [{"begin": "<n>", "schema": {"enum": [1, 2]}, "end": "</n>"}], "triggers": ["<n>"]}
        self.assertIn(self.text(extra_body={"guided_choice": answers}), answers)
        self.assertIn(self.text(extra_body={"structured_outputs": {"choice": answers}}), answers)
        for body in ({"structured_outputs": {"grammar": gbnf}}, {"guided_grammar": gbnf}, {"grammar": gbnf}):
            self.assertTrue(self.text(extra_body=body, max_tokens=5).startswith("<"))
        for body in ({"guided_json": SCHEMA}, {"guided_json": json.dumps(SCHEMA)}, {"structured_outputs": {"json": SCHEMA}}, {"json_schema": SCHEMA}):
            jsonschema.validate(json.loads(self.text(extra_body=body, temperature=0)), SCHEMA)
        self.assertTrue(self.text(extra_body={"structured_outputs": {"json_object": True}}).startswith("{"))
        for body in ({"structured_outputs": {"structural_tag": json.dumps(tag)}}, {"structural_tag": tag}):
            for number in re.findall("<n>(.*?)</n>", self.text(extra_body=body, max_tokens=30)):
                self.assertIn(number, ("1", "2"))

    # ---- errors ----

    def test_what_cannot_be_held_to_is_a_400(self):
        cases = [({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"properties": {"a": {"$dynamicRef": "#b"}}}}}},
                  "response_format.json_schema.schema", "#/properties/a/$dynamicRef"),
                 ({"extra_body": {"guided_json": {"type": "string", "minLength": 3, "maxLength": 2}}}, "guided_json", "no value"),
                 ({"extra_body": {"guided_regex": "(a"}}, "guided_regex", ""),
                 ({"extra_body": {"structured_outputs": {"grammar": "root ::= missing"}}}, "structured_outputs.grammar", "missing"),
                 ({"extra_body": {"guided_regex": "a", "use_beam_search": True}, "temperature": 0}, "guided_regex", "beam search"),
                 ({"extra_body": {"guided_regex": "a", "grammar": "root ::= [a]"}}, "grammar", "guided_regex"),
                 ({"extra_body": {"guided_regex": "a" * 1_100_000}}, "guided_regex", "--limit grammar-bytes")]
        for options, param, said in cases:
            with self.subTest(param=param, said=said):
                with self.assertRaises(openai.BadRequestError) as caught:
                    self.chat(**options)
                self.assertEqual(caught.exception.param, param)
                self.assertIn(said, caught.exception.message)

    # ---- company ----

    def test_neighbours_are_not_disturbed(self):
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}
        held = [dict(response_format=form, seed=seed, max_tokens=60) for seed in range(3)]
        free = [dict(seed=seed, max_tokens=40) for seed in range(3)]
        alone = [self.text(**options) for options in held + free]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            together = list(pool.map(lambda options: self.text(**options), held + free))
        self.assertEqual(together, alone)


if __name__ == "__main__":
    fixture.main()
