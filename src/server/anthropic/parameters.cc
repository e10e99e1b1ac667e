#include "server/anthropic/parameters.h"

#include <array>

namespace ingot::server::anthropic {
namespace {

using openai::EndpointSet;
using openai::kCountEndpoint;
using openai::kMessagesEndpoint;
using openai::Off;
using openai::Parameter;
using openai::ValueType;

constexpr EndpointSet kBoth = kMessagesEndpoint | kCountEndpoint;

constexpr std::string_view kMessages =
    R"({"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],"properties":{"role":{"enum":["user","assistant"]},"content":{"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["type"],"properties":{"type":{"enum":["text","tool_use","tool_result","thinking","redacted_thinking"]}}}}]}}}})";
constexpr std::string_view kSystem =
    R"({"anyOf":[{"type":"string"},{"type":"array","items":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]})";
constexpr std::string_view kTools =
    R"({"type":"array","items":{"type":"object","required":["name","input_schema"],"properties":{"type":{"const":"custom"},"name":{"type":"string"},"description":{"type":"string"},"strict":{"type":"boolean"},"input_schema":{"type":"object"}}}})";
constexpr std::string_view kToolChoice =
    R"({"type":"object","required":["type"],"properties":{"type":{"enum":["auto","any","tool","none"]},"name":{"type":"string"},"disable_parallel_tool_use":{"type":"boolean"}}})";
constexpr std::string_view kThinking =
    R"({"type":"object","required":["type"],"additionalProperties":false,"properties":{"type":{"enum":["disabled","enabled","adaptive"]},"budget_tokens":{"type":"integer","minimum":1},"display":{"type":"string"}}})";
constexpr std::string_view kConfig =
    R"({"type":"object","additionalProperties":false,"properties":{"effort":{"enum":["none","minimal","low","medium","high","xhigh","max"]},"format":{"type":"object","required":["type","schema"],"properties":{"type":{"const":"json_schema"},"schema":{"type":"object"}}}}})";

constexpr Parameter of(std::string_view name, std::string_view meaning, std::string_view schema) {
  return {.name = name, .endpoints = kBoth, .type = ValueType::other, .meaning = meaning, .schema = schema};
}
constexpr Parameter off(std::string_view name, Off off, ValueType type = ValueType::text) {
  return {.name = name, .endpoints = kBoth, .type = type, .off = off};
}

constexpr auto kRows = std::to_array<Parameter>({
    {.name = "messages",
     .endpoints = kBoth,
     .type = ValueType::other,
     .meaning = "the conversation",
     .required = true,
     .schema = kMessages},
    of("system", "the system message", kSystem),
    of("tools", "functions on offer", kTools),
    of("tool_choice", "which of them must be called", kToolChoice),
    of("thinking", "whether the model reasons before it answers", kThinking),
    of("output_config", "how hard it thinks, and what the text must be", kConfig),
    {.name = "max_tokens",
     .endpoints = kMessagesEndpoint,
     .type = ValueType::integer,
     .meaning = "new tokens",
     .least = 1,
     .required = true},
    {"temperature", kMessagesEndpoint, ValueType::number, "0: greedy", 0, 1},
    {"stop_sequences", kMessagesEndpoint, ValueType::texts, "texts that end it"},

    off("metadata", Off::always, ValueType::object),
    off("cache_control", Off::always, ValueType::object),  // prompts are always looked up in the prefix cache
    off("service_tier", Off::always),
    off("inference_geo", Off::always),
    off("container", Off::never),
    off("context_management", Off::empty),
    off("mcp_servers", Off::empty),
});

}  // namespace

std::span<const Parameter> own_parameters() { return kRows; }

}  // namespace ingot::server::anthropic
