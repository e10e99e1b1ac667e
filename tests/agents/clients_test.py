"""LangChain, instructor and litellm, unmodified, streaming and not: structured output and tools with the default model, which grammars hold; and an agent's loop
with a model that says what the test wants."""

import json

import openai
import pydantic
import pytest

import server as fixture
import tools_test as tools

QUESTION = [{"role": "user", "content": "Name a city, its country, and say whether it is a capital."}]


class City(pydantic.BaseModel, extra="forbid"):
    name: str = pydantic.Field(max_length=20)
    country: str = pydantic.Field(max_length=20)
    capital: bool


FORMAT = {"type": "json_schema", "json_schema": {"name": "city", "schema": City.model_json_schema(), "strict": True}}


@pytest.fixture(scope="module")
def url():
    with fixture.Server("--served-model-name", "test", "--max-model-len", 2048, model=fixture.default_model()) as server:
        yield server.url + "/v1"


# ---- instructor ----

def patched(url, mode):
    import instructor
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    return instructor.from_openai(client, mode=getattr(instructor.Mode, mode))


@pytest.mark.parametrize("mode", ["JSON_SCHEMA", "TOOLS", "TOOLS_STRICT"])
def test_instructor(url, mode):
    options = {"model": "test", "response_model": City, "max_retries": 0, "temperature": 0, "max_tokens": 150, "messages": QUESTION}
    assert isinstance(patched(url, mode).chat.completions.create(**options), City)
    parts = list(patched(url, mode).chat.completions.create_partial(**options))
    assert parts[-1].name and isinstance(parts[-1].capital, bool)


# ---- LangChain; its standard tests are in langchain_test.py ----

def test_langchain_format(url):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(model="test", base_url=url, api_key="none", temperature=0, max_retries=0, max_tokens=150)
    for schema, strict in ((City, None), (City.model_json_schema(), True)):
        held = model.with_structured_output(schema, method="json_schema", strict=strict)
        for answer in (held.invoke(QUESTION), list(held.stream(QUESTION))[-1]):
            City.model_validate(answer)
    (call,) = model.bind_tools([City], tool_choice="City", parallel_tool_calls=False).invoke(QUESTION).tool_calls
    City.model_validate(call["args"])


# ---- litellm ----

def complete(url, **options):
    import litellm
    return litellm.completion(model="openai/test", api_base=url, api_key="none", messages=options.pop("messages", QUESTION), temperature=0, max_tokens=150,
                              num_retries=0, **options)


def test_litellm_format(url):
    whole = complete(url, response_format=FORMAT).choices[0].message.content
    City.model_validate_json(whole)
    City.model_validate_json(complete(url, response_format=City).choices[0].message.content)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in complete(url, response_format=FORMAT, stream=True)) == whole


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_tools(url, stream):
    import litellm
    keep = {"type": "function", "function": {"name": "keep_city", "parameters": City.model_json_schema()}}
    answer = complete(url, tools=[keep, *tools.TOOLS], tool_choice={"type": "function", "function": {"name": "keep_city"}}, stream=stream)
    answer = litellm.stream_chunk_builder(list(answer)) if stream else answer
    (call,) = answer.choices[0].message.tool_calls
    assert call.function.name == "keep_city"
    City.model_validate_json(call.function.arguments)


@pytest.mark.parametrize("stream", [False, True])
def test_litellm_loop(stream):
    import litellm
    with tools.Scripted([tools.TEXTS["hermes"], "Sleet, at noon."], "--tool-format", "hermes") as client:
        messages = [{"role": "user", "content": "How is the weather, and how late is it?"}]
        for _ in range(2):
            answer = litellm.completion(model="openai/scripted", api_base=str(client.base_url), api_key="none", messages=messages, tools=tools.TOOLS,
                                        stream=stream)
            message = (litellm.stream_chunk_builder(list(answer)) if stream else answer).choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                result = tools.run_tool(call.function.name, json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert messages[-1]["content"] == "Sleet, at noon."


def test_litellm_reasoning():
    import litellm
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{# <think></think> #}"
    with tools.Scripted(["<think>Two and two.</think>Four."], template=template) as client:
        message = litellm.completion(model="openai/scripted", api_base=str(client.base_url), api_key="none", messages=QUESTION).choices[0].message
    assert (message.reasoning_content, message.content) == ("Two and two.", "Four.")
