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
    """The API over a model that gives these answers, one a request."""

    def __init__(self, answers, *args):
        self.answers = answers
        self.args = args

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        script = pathlib.Path(self.folder.name) / "answers.json"
        script.write_text(json.dumps(self.answers))
        binary = os.environ.get("INGOT_SCRIPTED_SERVER") or fixture.ROOT / "build" / "tests" / "scripted_server"
        self.process = subprocess.Popen([str(binary), str(script), *self.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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
        with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
            template.write("{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> tools tool_calls #}")
            template.flush()
            with Scripted(["<think>Two and two.</think>Four."], "--template", template.name) as client:
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


if __name__ == "__main__":
    fixture.main()
