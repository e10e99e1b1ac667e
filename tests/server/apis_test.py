#!/usr/bin/env python3
"""OpenAI's Responses and Anthropic's Messages through their own unmodified clients, streaming and not: loops of tools, structured
output, reasoning, conversations that the server keeps. Mostly with a model that says what the test wants."""

import json
import unittest

import anthropic
import openai
import pydantic

import server as fixture
from tools_test import ARGUMENTS, CALLS, Scripted, run_tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
NONE = {"type": "object", "properties": {}}
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{# <think></think> tools <tool_call> tool_calls #}"
TOOL_TEXT = ('<think>Look it up.</think>I look.\n<tool_call>\n{"name": "get_weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>\n"
             '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>')
FINAL = "Sleet, at noon."
QUESTION = "How is the weather, and how late is it?"


class City(pydantic.BaseModel):
    name: str
    people: int


class AgentServer(Scripted):
    """As Scripted, with a model that reasons; both clients, which check every field of the answers."""

    def __init__(self, answers, *args):
        super().__init__(answers, *args, template=TEMPLATE)

    def __enter__(self):
        self.url = str(super().__enter__().base_url).removesuffix("/v1/")
        return self

    def openai(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=60, _strict_response_validation=True)

    def anthropic(self, key="none"):
        return anthropic.Anthropic(base_url=self.url, api_key=key, max_retries=0, timeout=60, _strict_response_validation=True)


class ResponsesTest(unittest.TestCase):
    TOOLS = [{"type": "function", "name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA, "strict": False},
             {"type": "function", "name": "get_time", "parameters": NONE, "strict": False}]

    def respond(self, client, stream, **options):
        options = {"model": "scripted", "tools": self.TOOLS, **options}
        if not stream:
            return client.responses.create(**options)
        with client.responses.stream(**options) as events:
            numbers = [event.sequence_number for event in events]
            final = events.get_final_response()
        self.assertEqual(numbers, sorted(numbers))
        return final

    def results(self, response, made):
        """What the calls of a response give, as items."""
        items = []
        for item in response.output:
            if item.type == "function_call":
                made.append((item.name, json.loads(item.arguments)))
                items.append({"type": "function_call_output", "call_id": item.call_id, "output": run_tool(*made[-1])})
        return items

    def test_loop(self):
        """The client sends all items back, or only names the response before."""
        with AgentServer([TOOL_TEXT, FINAL]) as server:
            client = server.openai()
            for stream in (False, True):
                for kept in (False, True):
                    with self.subTest(stream=stream, kept=kept):
                        made = []
                        first = self.respond(client, stream, input=QUESTION)
                        self.assertEqual([item.type for item in first.output], ["reasoning", "message", "function_call", "function_call"])
                        self.assertEqual(first.output[0].content[0].text, "Look it up.")
                        results = self.results(first, made)
                        self.assertEqual(made, CALLS)
                        if kept:
                            second = self.respond(client, stream, input=results, previous_response_id=first.id)
                        else:
                            items = [{"role": "user", "content": QUESTION}] + [item.model_dump(exclude_none=True) for item in first.output]
                            second = self.respond(client, stream, input=items + results)
                        self.assertEqual(second.output_text, FINAL)
                        self.assertEqual(second.status, "completed")
                        self.assertGreater(second.usage.input_tokens, first.usage.input_tokens)

    def test_events(self):
        with AgentServer([TOOL_TEXT]) as server:
            texts = {}
            for event in server.openai().responses.create(model="scripted", input=QUESTION, tools=self.TOOLS, stream=True):
                if event.type.endswith(".delta"):
                    texts[event.output_index] = texts.get(event.output_index, "") + event.delta
                last = event
        self.assertEqual(last.type, "response.completed")
        self.assertEqual(list(texts.values())[:2], ["Look it up.", "I look.\n"])
        self.assertEqual([json.loads(text) for text in list(texts.values())[2:]], [arguments for _, arguments in CALLS])

    def test_parse(self):
        with AgentServer(['{"name": "Oslo", "people": 700000}']) as server:
            client = server.openai()
            parsed = client.responses.parse(model="scripted", input="A city?", text_format=City)
            self.assertEqual(parsed.output_parsed, City(name="Oslo", people=700000))
            with client.responses.stream(model="scripted", input="A city?", text_format=City) as events:
                final = events.until_done().get_final_response()
            self.assertEqual(final.output_parsed, City(name="Oslo", people=700000))

    def test_kept(self):
        with AgentServer(["One.", "Two."], "--api-key", "sk-a", "--api-key", "sk-b") as server:
            client, other = server.openai("sk-a"), server.openai("sk-b")
            first = client.responses.create(input="Count.", instructions="Be brief.", metadata={"a": "b"})
            self.assertEqual(client.responses.retrieve(first.id), first)
            second = client.responses.create(input="Go on.", previous_response_id=first.id)
            items = client.responses.input_items.list(second.id, order="asc").data
            self.assertEqual([item.content[0].text for item in items], ["Count.", "One.", "Go on."])
            for attempt in (lambda: other.responses.retrieve(first.id), lambda: other.responses.delete(first.id),
                            lambda: other.responses.create(input="x", previous_response_id=first.id),
                            lambda: client.responses.retrieve("resp_none")):
                with self.assertRaises(openai.NotFoundError):
                    attempt()
            with self.assertRaises(openai.BadRequestError):
                client.responses.cancel(first.id)
            client.responses.delete(first.id)
            with self.assertRaises(openai.NotFoundError):
                client.responses.retrieve(first.id)
            quiet = client.responses.create(input="x", store=False)
            with self.assertRaises(openai.NotFoundError):
                client.responses.retrieve(quiet.id)
            with self.assertRaisesRegex(openai.BadRequestError, "background"):
                client.responses.create(input="x", background=True)


class MessagesTest(unittest.TestCase):
    TOOLS = [{"name": "get_weather", "description": "The weather in a city.", "input_schema": SCHEMA},
             {"name": "get_time", "input_schema": NONE}]
    OPTIONS = {"model": "scripted", "max_tokens": 1000, "tools": TOOLS, "thinking": {"type": "enabled", "budget_tokens": 500}}

    def say(self, client, stream, **options):
        options = {**self.OPTIONS, **options}
        if not stream:
            return client.messages.create(**options)
        with client.messages.stream(**options) as events:
            return events.get_final_message()

    def test_loop(self):
        with AgentServer([TOOL_TEXT, FINAL]) as server:
            client = server.anthropic()
            for stream in (False, True):
                with self.subTest(stream=stream):
                    messages = [{"role": "user", "content": QUESTION}]
                    first = self.say(client, stream, messages=messages, system="Be brief.")
                    self.assertEqual([block.type for block in first.content], ["thinking", "text", "tool_use", "tool_use"])
                    self.assertEqual(first.content[0].thinking, "Look it up.")
                    self.assertTrue(first.content[0].signature)
                    self.assertEqual(first.stop_reason, "tool_use")
                    calls = [block for block in first.content if block.type == "tool_use"]
                    self.assertEqual([(call.name, call.input) for call in calls], CALLS)
                    messages += [{"role": "assistant", "content": first.content},
                                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id,
                                                               "content": run_tool(call.name, call.input)} for call in calls]}]
                    second = self.say(client, stream, messages=messages)
                    self.assertEqual(second.content[0].text, FINAL)
                    self.assertEqual(second.stop_reason, "end_turn")
                    usage = [message.usage.input_tokens + message.usage.cache_read_input_tokens for message in (first, second)]
                    self.assertLess(usage[0], usage[1])
                    self.assertGreater(second.usage.output_tokens, 0)

    def test_events(self):
        with AgentServer(["<think>Hm.</think>Four."]) as server:
            with server.anthropic().messages.stream(**{**self.OPTIONS, "messages": [{"role": "user", "content": "2+2?"}]}) as stream:
                self.assertEqual("".join(stream.text_stream), "Four.")
            types = [event.type for event in server.anthropic().messages.create(
                model="scripted", max_tokens=9, messages=[{"role": "user", "content": "2+2?"}], stream=True)]
        self.assertEqual(types[:2] + types[-3:], ["message_start", "content_block_start", "content_block_stop", "message_delta",
                                                  "message_stop"])

    def test_the_rest(self):
        with AgentServer(["Hi."], "--api-key", "sk-a") as server:
            client = server.anthropic("sk-a")
            messages = [{"role": "user", "content": "Hello"}]
            message = client.messages.create(model="scripted", max_tokens=9, messages=messages)
            self.assertEqual(message.content[0].text, "Hi.")
            self.assertEqual(message.id, f"msg_{message._request_id}")
            self.assertGreater(client.messages.count_tokens(model="scripted", messages=messages).input_tokens, 5)
            self.assertEqual([model.id for model in client.models.list()], ["scripted"])
            self.assertEqual(client.models.retrieve("scripted").type, "model")
            with self.assertRaises(anthropic.NotFoundError) as error:
                client.messages.create(model="other", max_tokens=9, messages=messages)
            self.assertEqual(error.exception.body["error"]["type"], "not_found_error")
            with self.assertRaises(anthropic.AuthenticationError):
                server.anthropic("sk-b").messages.create(model="scripted", max_tokens=9, messages=messages)
            with self.assertRaisesRegex(anthropic.BadRequestError, "image"):
                client.messages.create(model="scripted", max_tokens=9, messages=[{"role": "user", "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]}])


class DefaultModelTest(unittest.TestCase):
    def test_both(self):
        """A real model behind them, held to a schema and to a tool."""
        with fixture.Server("--served-model-name", "test", "--threads", 1, model=fixture.default_model()) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
            answer = client.responses.create(model="test", input="What is the capital of France?", temperature=0, max_output_tokens=12)
            self.assertIn("Paris", answer.output_text)
            schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["a"],
                      "additionalProperties": False}
            held = client.responses.create(model="test", input="A number.", max_output_tokens=40, temperature=0, text={
                "format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}})
            self.assertIsInstance(json.loads(held.output_text)["a"], int)
            other = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=120)
            tool = {"name": "set_number", "input_schema": schema}
            called = other.messages.create(model="test", max_tokens=60, messages=[{"role": "user", "content": "A number."}], tools=[tool],
                                           tool_choice={"type": "tool", "name": "set_number"}, extra_body={"temperature": 0})
            self.assertEqual(called.stop_reason, "tool_use")
            self.assertIsInstance(called.content[0].input["a"], int)


if __name__ == "__main__":
    fixture.main()
