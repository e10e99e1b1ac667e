#!/usr/bin/env python3
"""Writes tests/fixtures/templates/{conversations,snippets}.json: what Hugging Face transformers and jinja2 make of the
templates there. Needs `transformers` and `jinja2`; the tests do not.

With --local DIR it renders every *.jinja of a folder over the conversations instead and writes the result to --out."""
import argparse
import datetime
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as hf

from template_snippets import EXPRESSIONS, STATEMENTS, VARIABLES

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/templates"
NOW = datetime.datetime(2025, 3, 9, 14, 5, 6)  # strftime_now() in all goldens


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


hf.datetime = FixedTime

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "In \"Zürich\" <now>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name & place"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "array", "items": {"type": "integer"}},
            },
            "required": ["city"],
        },
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, id="abcdef123"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, id="abcdef123", name="get_weather"):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": text}


ASK = user("Weather in Zürich?")
CALL = assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": [1, 2], "x": None, "y": 1.5, "z": True})])
PARTS = [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": " what is it?"}]

CONVERSATIONS = {
    "user": {"messages": [user("Hi")]},
    "system_user": {"messages": [system("Be brief."), user("Hi")]},
    "multi_turn": {"messages": [system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye")]},
    "multi_turn_no_system": {"messages": [user("1"), assistant("2"), user("3"), assistant("4"), user("5")]},
    "ends_with_assistant": {"messages": [system("S"), user("Hi"), assistant("Hello!")]},
    "unicode": {"messages": [system("Антворте 日本語で 🎌"), user("Grüße 👩‍👩‍👧 \u200b नमस्ते \"q\" <b> & 'x' \\n")]},
    "whitespace": {"messages": [system("  s  \n"), user("\n\n  padded \t\n"), assistant("  a \n"), user(" \u3000x\u00a0 ")]},
    "empty_content": {"messages": [system(""), user(""), assistant(""), user("")]},
    "null_content": {"messages": [system("S"), user("Hi"), assistant(None), user("x")]},
    "missing_content": {"messages": [system("S"), user("Hi"), {"role": "assistant"}, user("x")]},
    "missing_role": {"messages": [system("S"), {"content": "no role"}]},
    "unknown_role": {"messages": [system("S"), user("Hi"), {"role": "critic", "content": "Hm"}]},
    "two_users": {"messages": [system("S"), user("a"), user("b")]},
    "two_systems": {"messages": [system("S"), user("a"), assistant("b"), system("T"), user("c")]},
    "only_system": {"messages": [system("S")]},
    "starts_with_assistant": {"messages": [assistant("I start"), user("ok")]},
    "no_messages": {"messages": []},
    "parts": {"messages": [system("S"), user(PARTS)]},
    "system_parts": {"messages": [system([{"type": "text", "text": "Parts"}]), user([{"type": "text", "text": "Hi"}])]},
    "tools": {"messages": [system("S"), ASK], "tools": [WEATHER, ADD]},
    "tools_no_system": {"messages": [ASK], "tools": [ADD]},
    "tools_empty": {"messages": [system("S"), ASK], "tools": []},
    "tool_call": {"messages": [system("S"), ASK, CALL], "tools": [ADD]},
    "tool_result": {"messages": [system("S"), ASK, CALL, tool('{"temp": 21}'), assistant("21 °C."), user("Thanks")],
                    "tools": [WEATHER, ADD]},
    "tool_result_last": {"messages": [system("S"), ASK, CALL, tool('{"temp": 21}')], "tools": [ADD]},
    "tool_two_calls": {"messages": [system("S"), ASK,
                                    assistant("Let me see.", tool_calls=[call("get_weather", {"city": "A"}, "call00001"),
                                                                         call("add", {"a": 1, "b": 2.0}, "call00002")]),
                                    tool("sun", "call00001"), tool("3", "call00002", "add"), assistant("Done."), user("ok")],
                       "tools": [ADD]},
    "tool_arguments_string": {"messages": [system("S"), ASK, assistant(None, tool_calls=[call("add", '{"a": 1}')]),
                                           tool("1")], "tools": [ADD]},
    "tool_short_id": {"messages": [system("S"), ASK, assistant("", tool_calls=[call("add", {}, "1")]), tool("1", "1")],
                      "tools": [ADD]},
    "tool_call_without_tools": {"messages": [system("S"), ASK, CALL, tool("21")]},
    "thinking_off": {"messages": [system("S"), user("Hi")], "extra": {"enable_thinking": False}},
    "thinking_on": {"messages": [system("S"), user("Hi")], "extra": {"enable_thinking": True}},
    "reasoning_history": {"messages": [system("S"), user("Hi"), assistant("<think>\nhm\n</think>\n\nHello"), user("b"),
                                       assistant("Yes", reasoning_content="because"), user("c")]},
    "reasoning_tool": {"messages": [system("S"), ASK, {**CALL, "reasoning_content": "I need the tool"}, tool("21"),
                                    assistant("It is 21.", thinking="done")],
                       "tools": [ADD]},
    "llama_options": {"messages": [system("S"), ASK], "tools": [ADD],
                      "extra": {"tools_in_user_message": False, "date_string": "1 Jan 2024"}},
    "custom_tools": {"messages": [system("S"), ASK], "extra": {"custom_tools": [ADD], "builtin_tools": ["brave_search"]}},
    "continue": {"messages": [system("S"), user("Hi"), assistant("The answer is")], "continue_final_message": True},
    "continue_spaces": {"messages": [system("S"), user("Hi"), assistant(" The answer is \n")], "continue_final_message": True},
}
# Without a system message these write out a default of several KB; one such case is enough.
LONG_DEFAULT = {"devstral-small-2507": "user", "mistral-small-3.2-2506": "tools_no_system"}
# These differ from another template in little.
SAMPLED = {"llama-3.2-3b-instruct": {"user", "multi_turn", "unicode", "parts", "tools", "tools_no_system", "tool_result",
                                     "tool_two_calls", "llama_options", "custom_tools", "only_system"}}
# Conversations for templates that look at something: without it they would only repeat others.
NEEDS = {"tool": "tool", "thinking": "enable_thinking", "reasoning": "think", "llama": "custom_tools", "custom": "custom_tools"}
ALWAYS = {"tools", "tool_two_calls", "reasoning_history"}


def failure(e):
    """jinja2's own errors have to be equal in their text, Python's only in that there is one."""
    if isinstance(e, jinja2.exceptions.TemplateError):
        return {"error": type(e).__name__, "message": str(e.message)}
    return {"error": type(e).__name__}


def render(source, conversation, add_generation_prompt):
    extra = {"bos_token": "<s>", "eos_token": "</s>", **conversation.get("extra", {})}
    try:
        rendered, _ = hf.render_jinja_template(
            conversations=[json.loads(json.dumps(conversation["messages"]))],
            tools=conversation.get("tools"),
            chat_template=source,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=conversation.get("continue_final_message", False),
            **extra,
        )
        return {"text": rendered[0]}
    except Exception as e:  # whatever it is, the C++ side has to refuse, too
        return failure(e)


def conversation_cases(name, source):
    for key, conversation in CONVERSATIONS.items():
        starts_with_system = bool(conversation["messages"]) and conversation["messages"][0].get("role") == "system"
        if name in LONG_DEFAULT and not starts_with_system and key != LONG_DEFAULT[name]:
            continue
        if key not in ALWAYS and any(key.startswith(k) and word not in source for k, word in NEEDS.items()):
            continue
        if name in SAMPLED and key not in SAMPLED[name]:
            continue
        continued = conversation.get("continue_final_message", False)
        without = render(source, conversation, False)
        case = {"t": name, "c": key}
        if not continued:
            with_prompt = render(source, conversation, True)
            case["prompt"] = with_prompt
            # Mostly the one is the start of the other.
            if "text" in without and "text" in with_prompt and with_prompt["text"].startswith(without["text"]):
                without = {"bytes_of_prompt": len(without["text"].encode())}
        if without != case.get("prompt"):
            case["no_prompt"] = without
        yield case


def snippet_cases():
    sources = ["{{ " + line + " }}" for line in EXPRESSIONS.strip().split("\n")] + STATEMENTS
    environment_of = hf._cached_compile_jinja_template
    for source in sources:
        case = {"source": source}
        try:
            case["text"] = environment_of(source).render(**json.loads(json.dumps(VARIABLES)))
            assert " at 0x" not in case["text"], source
        except AssertionError:
            continue
        except Exception as e:
            case.update(failure(e))
        yield case


def write(path, head, cases):
    """One case a line, so that a change of one shows as such."""
    lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
    text = "{" + "".join(f'"{k}":{json.dumps(v, ensure_ascii=False, separators=(",", ":"))},\n' for k, v in head.items())
    path.write_text(text + '"cases":[\n' + lines + "\n]}\n", newline="")
    print(f"{path}: {len(cases)} cases, {path.stat().st_size} bytes, {sum('error' in c for c in cases)} errors")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.local or FIXTURES
    cases = []
    for path in sorted(folder.glob("*.jinja")):
        with path.open(newline="") as f:
            cases += conversation_cases(path.stem, f.read())
    write(args.out or FIXTURES / "conversations.json", {"conversations": CONVERSATIONS}, cases)
    if not args.local:
        write(FIXTURES / "snippets.json", {"variables": VARIABLES}, list(snippet_cases()))


if __name__ == "__main__":
    main()
