"""LangChain's standard tests of a chat model, unmodified, with its client for OpenAI's API against this server.

The default model answers where any words will do. Where a test asks for what a model of 135M parameters does not say (one call and no more, a joke that ends,
a customer's name in Chinese), a model that says it takes its place: what is tested then is how it gets through. What grammars hold the default model to is tested in
clients_test.py.
"""

import json

import pytest
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

import server as fixture
import tools_test as tools

# Of the standard tests: what decides them is what the model says.
SAYS = ["test_agent_loop", "test_bind_runnables_as_tools", "test_json_mode", "test_structured_output", "test_structured_output_async",
        "test_structured_output_optional_param", "test_structured_output_pydantic_2_v1", "test_tool_calling", "test_tool_calling_async",
        "test_tool_calling_with_no_arguments", "test_tool_choice", "test_unicode_tool_call_integration"]
JOKE = {"setup": "Why was the cat on the computer?", "punchline": "To watch the mouse."}


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"


# Parts of prompts, and what is said to the first that is found.
SCRIPT = {
    "It's sunny.": "It is sunny in San Francisco.",
    "What is the weather in San Francisco": call("get_weather", location="San Francisco, CA"),
    "你好啊集团": call("unicode_customer", customer_name="你好啊集团", description="A Chinese technology company"),
    "こんにちは株式会社": call("unicode_customer", customer_name="こんにちは株式会社", description="A Japanese company"),
    "magic_function_no_args()": call("magic_function_no_args"),
    "magic_function(3)": call("magic_function", input=3),
    "Pirate greeting": call("greeting_generator", answer_style="pirate"),
    "Hello!": call("magic_function", input=3),
    '"punchline"': call("Joke", **JOKE),  # a tool that is offered
    "joke about cats": json.dumps(JOKE),
}


class Standard(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatOpenAI

    @property
    def chat_model_params(self):
        return {"model": self.name, "base_url": self.url, "api_key": "none", "temperature": 0, "max_retries": 0, "max_tokens": 60, "stream_usage": True}

    @property
    def supports_json_mode(self):
        return True

    @property
    def enable_vcr_tests(self):
        return False


class TestDefaultModel(Standard):
    name = "test"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def serve(cls):
        with fixture.Server("--served-model-name", cls.name, "--max-model-len", 4096, model=fixture.default_model()) as server:
            cls.url = server.url + "/v1"
            yield


class TestScriptedModel(Standard):
    name = "scripted"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def serve(cls):
        with tools.Scripted(SCRIPT, "--tool-format", "hermes") as client:
            cls.url = str(client.base_url)
            yield
