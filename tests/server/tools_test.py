#!/usr/bin/env python3
"""Agents as they are written: the unmodified OpenAI client in a loop of calls and results, streaming and not, with a model that
says what the test wants, in several dialects."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import openai

import server as fixture
import tiny_model

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}},
]
CALLS = [("get_weather", {"city": "Zürich 東京", "days": 2}), ("get_time", {})]
ARGUMENTS = json.dumps(CALLS[0][1], ensure_ascii=False)

# How a model of each dialect writes the two calls.
TEXTS = {
    "hermes": f'I look.\n<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
              '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
    "qwen3_coder": "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich 東京\n</parameter>\n<parameter=days>\n2\n"
                   "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>",
    "mistral": f"I look.\n[TOOL_CALLS]get_weather[ARGS]{ARGUMENTS}[TOOL_CALLS]get_time[ARGS]{{}}",
    "llama3_json": f'I look.\n{{"name": "get_weather", "parameters": {ARGUMENTS}}}; {{"name": "get_time", "parameters": {{}}}}',
    "harmony": "<|channel|>commentary<|message|>I look.\n<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
               f"<|constrain|>json<|message|>{ARGUMENTS}<|call|><|start|>assistant<|channel|>commentary to=functions.get_time "
               "<|constrain|>json<|message|>{}<|call|>",
    "json": f'I look.\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n{{"name": "get_time", "arguments": {{}}}}',
}
FINAL = {"harmony": "<|channel|>final<|message|>Sleet, at noon."}


class Scripted:
    """The API over a model that gives these answers (see scripted_server.cc), as a client."""

    def __init__(self, answers, *args, template=None):
        self.answers = answers
        self.args = args
        self.template = template

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        folder, args = pathlib.Path(self.folder.name), list(self.args)
        (folder / "answers.json").write_text(json.dumps(self.answers))
        if self.template:
            (folder / "template.jinja").write_text(self.template)
            args += ["--template", str(folder / "template.jinja")]
        binary = os.environ.get("INGOT_SCRIPTED_SERVER") or fixture.ROOT / "build" / "tests" / "scripted_server"
        self.process = subprocess.Popen([str(binary), str(folder / "answers.json"), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        url = self.process.stdout.readline().strip()
        assert url.startswith("http"), f"{binary} has not started"
        return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        self.folder.cleanup()


def run_tool(name, arguments):
    return {"get_weather": f"sleet in {arguments.get('city')}", "get_time": "noon"}[name]


def ask(client, messages, stream):
    """The assistant's message, put together from a stream as applications do it, and why it ended."""
    options = {"model": "scripted", "messages": messages, "tools": TOOLS, "stream": stream}
    if not stream:
        choice = client.chat.completions.create(**options).choices[0]
        return choice.message.model_dump(exclude_none=True), choice.finish_reason
    content, calls, finish = "", [], None
    for chunk in client.chat.completions.create(**options):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            if call.index == len(calls):
                calls.append({"id": call.id, "type": call.type, "function": {"name": call.function.name, "arguments": ""}})
            calls[call.index]["function"]["arguments"] += call.function.arguments or ""
    message = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = calls
    return message, finish


class ToolsTest(unittest.TestCase):
    def loop(self, client, stream):
        messages = [{"role": "user", "content": "How is the weather, and how late is it?"}]
        made = []
        for _ in range(3):
            message, finish = ask(client, messages, stream)
            messages.append(message)
            if finish != "tool_calls":
                return made, message, finish
            for call in message["tool_calls"]:
                self.assertTrue(call["id"])
                self.assertEqual(call["type"], "function")
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                made.append((name, arguments))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": run_tool(name, arguments)})
        self.fail("the model never ended")

    def test_loop(self):
        for dialect, text in TEXTS.items():
            for stream in (False, True):
                with self.subTest(dialect=dialect, stream=stream):
                    answers = [text, FINAL.get(dialect, "Sleet, at noon.")]
                    with Scripted(answers, "--tool-format", dialect) as client:
                        made, message, finish = self.loop(client, stream)
                    self.assertEqual(made, CALLS)
                    self.assertEqual(message["content"], "Sleet, at noon.")
                    self.assertEqual(finish, "stop")

    def test_helpers_of_the_client(self):
        """The client's own way to put a stream together."""
        with Scripted([TEXTS["hermes"]], "--tool-format", "hermes") as client:
            with client.chat.completions.stream(model="scripted", messages=[{"role": "user", "content": "x"}], tools=TOOLS) as stream:
                done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
                final = stream.get_final_completion().choices[0]
        self.assertEqual([(event.name, json.loads(event.arguments)) for event in done], CALLS)
        self.assertEqual(final.finish_reason, "tool_calls")
        self.assertEqual(final.message.content, "I look.\n")

    def test_reasoning(self):
        template = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> tools tool_calls #}"
        with Scripted(["<think>Two and two.</think>Four."], template=template) as client:
            question = [{"role": "user", "content": "2+2"}]
            message = client.chat.completions.create(model="scripted", messages=question).choices[0].message
            self.assertEqual((message.reasoning_content, message.reasoning, message.content), ("Two and two.", "Two and two.", "Four."))
            text = {"reasoning_content": "", "content": ""}
            for chunk in client.chat.completions.create(model="scripted", messages=question, stream=True):
                for name in text:
                    text[name] += getattr(chunk.choices[0].delta, name, None) or ""
            self.assertEqual(text, {"reasoning_content": "Two and two.", "content": "Four."})

    def test_the_default_model(self):
        """What a small model says to tools is its own affair: it must come through, and replay."""
        with fixture.Server("--served-model-name", "test", "--threads", 1, model=fixture.default_model()) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
            options = {"model": "test", "tools": TOOLS, "temperature": 0, "max_tokens": 12}
            messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
            first = client.chat.completions.create(messages=messages, **options)
            self.assertIn(first.choices[0].finish_reason, ("stop", "length", "tool_calls"))
            messages += [
                {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {
                    "name": "get_weather", "arguments": '{"city": "Oslo"}'}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "sleet"}]
            second = client.chat.completions.create(messages=messages, **options)
            self.assertGreater(second.usage.prompt_tokens, first.usage.prompt_tokens)
            # Held to its tools, the smallest model calls them.
            once = {**options, "messages": messages[:1], "max_tokens": 120, "parallel_tool_calls": False}
            for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
                answer = client.chat.completions.create(**once, tool_choice=choice).choices[0]
                self.assertIn(answer.finish_reason, ("tool_calls", "length"), answer)
                self.assertEqual(len(answer.message.tool_calls), 1)
                self.assertIn(answer.message.tool_calls[0].function.name, ("get_weather", "get_time"))
                if answer.finish_reason == "tool_calls":
                    self.assertIsInstance(json.loads(answer.message.tool_calls[0].function.arguments), dict)
            self.assertEqual(answer.message.tool_calls[0].function.name, "get_weather")
            with self.assertRaises(openai.BadRequestError) as caught:
                client.chat.completions.create(messages=messages, **{**options, "tools": [{"type": "function"}]})
            self.assertIn("tools[0].function", caught.exception.message)


class ThinkingTest(unittest.TestCase):
    """A model that thinks on and on, as its template has it begin: of bytes, so that a token is a byte."""

    SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["small", "large"]}}, "required": ["ok", "size"],
              "additionalProperties": False}
    FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        template = pathlib.Path(cls.folder.name) / "template.jinja"
        template.write_text(tiny_model.TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}{# </think> <tool_call> tools tool_calls #}")
        cls.server = fixture.Server("--served-model-name", "test", "--threads", 1, "--chat-template", template,
                                    model=tiny_model.make(pathlib.Path(cls.folder.name) / "model"))
        cls.server.start()
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0, timeout=60)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.folder.cleanup()

    def ask(self, stream, n=1, **options):
        """(reasoning, content, calls, token ids) of each choice."""
        body = {"return_token_ids": True, **{name: options.pop(name) for name in list(options) if name.endswith("budget")}}
        options = {"model": "test", "messages": [{"role": "user", "content": "Is it?"}], "max_tokens": 400, "temperature": 1, "seed": 5, "n": n,
                   "stream": stream, "extra_body": body, **options}
        answer = self.client.chat.completions.create(**options)
        if not stream:
            return [(c.message.reasoning or "", c.message.content or "", [t.function.name for t in c.message.tool_calls or []], c.token_ids)
                    for c in answer.choices]
        parts = [["", "", [], []] for _ in range(n)]
        for chunk in answer:
            for choice in chunk.choices:
                part, delta = parts[choice.index], choice.delta
                part[0] += getattr(delta, "reasoning", None) or ""
                part[1] += delta.content or ""
                part[2] += [call.function.name for call in delta.tool_calls or [] if call.id]
                part[3] += getattr(choice, "token_ids", None) or []
        return [tuple(part) for part in parts]

    def thought(self, ids):
        """How many tokens came before the mark that closes the block; a token is a byte."""
        text = bytes(tiny_model.BYTES[token - 3] for token in ids if token >= 3)
        self.assertEqual(text.count(b"</think>"), 1, text)
        return text.index(b"</think>")

    def test_a_format_behind_a_budget(self):
        for budget in (0, 7, 60):
            whole = self.ask(False, n=2, response_format=self.FORMAT, thinking_token_budget=budget)
            self.assertEqual(self.ask(True, n=2, response_format=self.FORMAT, thinking_token_budget=budget), whole)
            for reasoning, content, _, ids in whole:
                self.assertIn(self.thought(ids), range(budget, budget + 4))
                self.assertEqual(bool(reasoning.strip()), budget > 0)
                self.assertEqual(list(json.loads(content)), ["ok", "size"])

    def test_free_text_behind_a_budget(self):
        whole = self.ask(False, thinking_token_budget=9)
        self.assertEqual(self.ask(True, thinking_token_budget=9), whole)
        self.assertIn(self.thought(whole[0][3]), range(9, 13))
        self.assertGreater(len(whole[0][1]), 10)
        self.assertNotIn("</think>", whole[0][0] + whole[0][1])
        # Without one this model never comes to its answer.
        self.assertEqual(self.ask(False)[0][1], "")

    def test_tools_and_a_format(self):
        """Calls, or text of the format: nothing else."""
        seen = set()
        for seed in range(8):
            _, content, calls, _ = self.ask(False, response_format=self.FORMAT, tools=TOOLS[1:], seed=seed, thinking_token_budget=3)[0]
            self.assertNotEqual(bool(calls), bool(content))
            if calls:
                self.assertEqual(set(calls), {"get_time"})
            else:
                self.assertEqual(list(json.loads(content)), ["ok", "size"])
            seen.add(bool(calls))
        self.assertEqual(seen, {True, False}, "this model does one as well as the other")
        _, content, calls, _ = self.ask(False, response_format=self.FORMAT, tools=TOOLS[1:], tool_choice="required", thinking_token_budget=3)[0]
        self.assertEqual((content, set(calls)), ("", {"get_time"}))


if __name__ == "__main__":
    fixture.main()
