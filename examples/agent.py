#!/usr/bin/env python3
"""An agent: a model in a loop with tools, here a folder it may look into and a calculator.

    ingot serve &
    python examples/agent.py --folder DIR "How many apples and pears are there together?"

The tools are strict and one must be called at each turn, so that a grammar holds the model to calls that fit: even the smallest one gets through. What is
on offer follows from what is known: files can be read once, and the answer comes last. Needs: pip install openai
"""
import argparse
import json
import operator
import pathlib

import openai

OPERATORS = {"plus": operator.add, "minus": operator.sub, "times": operator.mul, "divided by": operator.truediv}


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "strict": True, "parameters": parameters}}


class Agent:
    def __init__(self, url, model, folder):
        self.client, self.model = openai.OpenAI(base_url=url, api_key="none"), model
        self.folder, self.unread, self.result = pathlib.Path(folder), None, None

    def tools(self):
        if self.unread is None:
            return [tool("list_folder", "The names of the files.")]
        if self.unread:
            return [tool("read_file", "What is in a file.", file={"enum": self.unread})]
        if self.result is None:
            return [tool("calculate", "Arithmetic with two numbers.", left={"type": "integer"}, operator={"enum": list(OPERATORS)}, right={"type": "integer"})]
        return [tool("answer", "The answer to the question.", text={"type": "string", "maxLength": 80})]

    def list_folder(self):
        self.unread = sorted(file.name for file in self.folder.iterdir())
        return ", ".join(self.unread)

    def read_file(self, file):
        self.unread.remove(file)
        return (self.folder / file).read_text()[:1000]

    def calculate(self, left, operator, right):
        self.result = OPERATORS[operator](left, right)
        return f"{left} {operator} {right} is {self.result}"

    def run(self, question):
        messages = [{"role": "user", "content": question}]
        while True:
            message = self.client.chat.completions.create(model=self.model, messages=messages, tools=self.tools(), tool_choice="required",
                                                          parallel_tool_calls=False, temperature=0).choices[0].message
            call = message.tool_calls[0].function
            arguments = json.loads(call.arguments)
            print(f"{call.name}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})", flush=True)
            if call.name == "answer":
                return arguments["text"]
            result = getattr(self, call.name)(**arguments)
            print(f"  {result}", flush=True)
            messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": result}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--folder", default=".")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="")
    args = parser.parse_args()
    print(Agent(args.url, args.model, args.folder).run(args.question))
