"""ingot.LLM.chat with tools and formats, as agents use it, on the default model: grammars say what it says."""

import json
import unittest

import ingot
import pydantic

TOOLS = [{"type": "function", "function": {"name": "get_time", "description": "The time in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 12}}, "required": ["city"], "additionalProperties": False}}}]
QUESTION = [{"role": "user", "content": "How late is it in Oslo?"}]


class Hour(pydantic.BaseModel, extra="forbid"):
    hour: int = pydantic.Field(ge=0, le=23)
    sure: bool


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = ingot.LLM(device="cpu", max_seqs=4, max_model_len=1024)

    def tearDown(self):
        self.assertEqual(self.llm.check_integrity(), [])

    def test_a_format(self):
        schema = {"type": "json_schema", "json_schema": {"schema": Hour.model_json_schema(), "strict": True}}
        for form in (Hour, schema):
            choice = self.llm.chat(QUESTION, max_tokens=60, temperature=0, response_format=form).choices[0]
            self.assertEqual(choice.finish_reason, "stop")
            Hour.model_validate_json(choice.content)
            self.assertEqual(list(json.loads(choice.content)), ["hour", "sure"], "strict: in the order of the model")
            self.assertEqual((choice.reasoning, choice.tool_calls), ("", []))

    def test_a_loop_of_calls_and_results(self):
        for choice in ("required", "get_time"):
            choice = self.llm.chat(QUESTION, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=100, temperature=0).choices[0]
            self.assertEqual((choice.finish_reason, choice.content), ("tool_calls", ""))
        (call,) = choice.tool_calls
        self.assertEqual(call["type"], "function")
        self.assertEqual((call["function"]["name"], list(json.loads(call["function"]["arguments"]))), ("get_time", ["city"]))
        messages = [*QUESTION, choice.message(), {"role": "tool", "tool_call_id": call["id"], "content": "It is 7."}]
        answer = self.llm.chat(messages, tools=TOOLS, tool_choice="none", max_tokens=60, temperature=0, response_format=Hour).choices[0]
        self.assertEqual(answer.tool_calls, [])
        Hour.model_validate_json(answer.content)

    def test_choices_that_are_none(self):
        for tools, choice in ((None, "required"), (TOOLS, "get_tim"), (None, "get_time")):
            with self.assertRaisesRegex(ingot.Error, "tool_choice"):
                self.llm.chat(QUESTION, tools=tools, tool_choice=choice)


if __name__ == "__main__":
    unittest.main()
