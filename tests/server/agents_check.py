#!/usr/bin/env python3
"""Structured output through the libraries that agents are built with: LangChain and instructor, unmodified. By hand, because they bring dozens of packages:

    pip install langchain-openai instructor
    INGOT_BINARY=build/bin/ingot INGOT_DEFAULT_MODEL=$(scripts/fetch_model.sh --path) python tests/server/agents_check.py
"""

import unittest

import pydantic

import server as fixture

QUESTION = "Name a city, its country, and say whether it is a capital."


class City(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=20)
    country: str = pydantic.Field(max_length=20)
    capital: bool


class AgentsCheck(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = fixture.Server("--served-model-name", "test", "--max-model-len", 2048, model=fixture.default_model())
        cls.server.start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def langchain_model(self):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(model="test", base_url=self.server.url + "/v1", api_key="none", temperature=0, max_retries=0, max_tokens=120)

    def test_langchain_json_schema(self):
        model = self.langchain_model().with_structured_output(City, method="json_schema")
        self.assertIsInstance(model.invoke(QUESTION), City)
        for strict in (False, True):
            answer = self.langchain_model().with_structured_output(City.model_json_schema(), method="json_schema", strict=strict).invoke(QUESTION)
            City.model_validate(answer)
        self.assertIsInstance(list(model.stream(QUESTION))[-1], City)

    def test_langchain_json_mode(self):
        schema = '{"name": "...", "country": "...", "capital": true}'
        model = self.langchain_model().with_structured_output(None, method="json_mode", include_raw=True)
        answer = model.invoke(f"{QUESTION} Answer with JSON like {schema}")
        self.assertTrue(answer["raw"].content.startswith("{"))
        self.assertTrue(isinstance(answer["parsed"], dict) or answer["raw"].response_metadata["finish_reason"] == "length")

    def test_instructor(self):
        import instructor
        import openai
        client = openai.OpenAI(base_url=self.server.url + "/v1", api_key="none", max_retries=0)
        for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.JSON):
            patched = instructor.from_openai(client, mode=mode)
            try:
                city = patched.chat.completions.create(model="test", response_model=City, max_retries=0, temperature=0, max_tokens=120,
                                                       messages=[{"role": "user", "content": QUESTION}])
            except Exception as error:  # json_object holds to JSON, not to the schema: what the model says in it is its own affair
                self.assertEqual(mode, instructor.Mode.JSON, error)
                self.assertRegex(str(error), "validation error|incomplete")
                continue
            self.assertIsInstance(city, City)


if __name__ == "__main__":
    fixture.main()
