#include "server/responses/parameters.h"

#include <array>

namespace ingot::server::responses {
namespace {

using openai::kResponsesEndpoint;
using openai::Off;
using openai::Parameter;
using openai::ValueType;

constexpr std::string_view kInput =
    R"({"anyOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object","properties":{"type":{"enum":["message","function_call","function_call_output","reasoning"]}}}}]})";
constexpr std::string_view kTools =
    R"({"type":"array","items":{"type":"object","required":["type","name"],"properties":{"type":{"const":"function"},"name":{"type":"string"},"description":{"type":"string"},"strict":{"type":"boolean"},"parameters":{"type":"object"}}}})";
constexpr std::string_view kToolChoice =
    R"({"anyOf":[{"enum":["auto","none","required"]},{"type":"object","required":["type","name"],"properties":{"type":{"const":"function"},"name":{"type":"string"}}}]})";
constexpr std::string_view kReasoning =
    R"({"type":"object","additionalProperties":false,"properties":{"effort":{"enum":["none","minimal","low","medium","high","xhigh"]},"summary":{"type":"string"},"generate_summary":{"type":"string"},"context":{"type":"string"},"mode":{"type":"string"}}})";
constexpr std::string_view kText =
    R"({"type":"object","additionalProperties":false,"properties":{"format":{"type":"object","required":["type"],"properties":{"type":{"enum":["text","json_object","json_schema"]},"name":{"type":"string"},"schema":{"type":"object"},"strict":{"type":"boolean"}}},"verbosity":{"const":"medium"}}})";
constexpr std::string_view kTexts = R"({"type":"array","items":{"type":"string"}})";
constexpr std::string_view kMetadata = R"({"type":"object","additionalProperties":{"type":"string"}})";
constexpr std::string_view kStreamOptions =
    R"({"type":"object","additionalProperties":false,"properties":{"include_obfuscation":{"type":"boolean"}}})";

constexpr Parameter of(std::string_view name, ValueType type, std::string_view meaning, std::string_view schema = {}) {
  return {.name = name, .endpoints = kResponsesEndpoint, .type = type, .meaning = meaning, .schema = schema};
}
constexpr Parameter off(std::string_view name, Off off, ValueType type = ValueType::text,
                        std::string_view hint = "is not supported by this server") {
  return {.name = name, .endpoints = kResponsesEndpoint, .type = type, .off = off, .hint = hint};
}

constexpr auto kRows = std::to_array<Parameter>({
    of("input", ValueType::other, "a text, or items; left out: the model begins", kInput),
    of("instructions", ValueType::text, "the system message"),
    of("previous_response_id", ValueType::text, "goes on where that response ended"),
    of("tools", ValueType::other, "functions on offer", kTools),
    of("tool_choice", ValueType::other, "auto, none, required, or a function", kToolChoice),
    of("parallel_tool_calls", ValueType::boolean, "false: only the first call is handed on"),
    of("text", ValueType::other, "what the text must be", kText),
    of("reasoning", ValueType::other, "how much of it", kReasoning),
    {.name = "max_output_tokens",
     .endpoints = kResponsesEndpoint,
     .type = ValueType::integer,
     .meaning = "new tokens",
     .least = 1},
    of("truncation", ValueType::other, "auto: the end of the prompt is kept, as much as fits",
       R"({"enum":["disabled","auto"]})"),
    of("include", ValueType::other, "message.output_text.logprobs: of the text's tokens", kTexts),
    {.name = "top_logprobs",
     .endpoints = kResponsesEndpoint,
     .type = ValueType::integer,
     .meaning = "alternatives, with the log probabilities of the text",
     .least = 0,
     .limit = &openai::RequestLimits::max_logprobs},
    of("metadata", ValueType::other, "texts; comes back", kMetadata),
    of("store", ValueType::boolean, "true: the response is kept"),
    of("stream_options", ValueType::other, "with stream", kStreamOptions),

    off("user", Off::always),
    off("safety_identifier", Off::always),
    off("service_tier", Off::always),
    off("prompt_cache_key", Off::always),
    off("prompt_cache_retention", Off::always),
    off("prompt_cache_options", Off::always, ValueType::object),
    off("max_tool_calls", Off::always, ValueType::integer),  // of tools that a server runs itself: there are none here
    off("background", Off::is_false, ValueType::other,
        "is not supported by this server: wait for the answer, or stream it"),
    off("prompt", Off::never, ValueType::other,
        "is not supported: this server keeps no prompt templates, send instructions and input"),
    off("conversation", Off::never, ValueType::other, "is not supported by this server: use previous_response_id"),
    off("context_management", Off::empty),
    off("moderation", Off::empty),
});

}  // namespace

std::span<const Parameter> own_parameters() { return kRows; }

}  // namespace ingot::server::responses
