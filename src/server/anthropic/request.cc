#include "server/anthropic/request.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/anthropic/answer.h"
#include "server/anthropic/conversation.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/structured_fields.h"
#include "server/openai/tools.h"

namespace ingot::server::anthropic {
namespace {

using Json = nlohmann::ordered_json;
using openai::ChatInput;
using openai::fail;
using openai::Fields;
using openai::kind_of;
using openai::ToolChoice;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

void take_choice(Fields& fields, const std::set<std::string>& names, ChatInput& chat) {
  const Json* choice = fields.take("tool_choice");
  if (choice == nullptr) return;
  using Kind = ToolChoice::Kind;
  Fields inner(*choice, "tool_choice");
  const std::string type = inner.required("type");
  if (type == "tool") {
    std::string name = inner.required("name");
    openai::check_chosen(name, names, "tool_choice.name");
    chat.tool_choice = {.kind = Kind::named, .name = std::move(name)};
  } else if (type == "any") {
    if (names.empty()) fail("tool_choice", "invalid_value", "is \"any\", but there are no tools");
    chat.tool_choice.kind = Kind::required;
  } else if (type == "none") {
    chat.tool_choice.kind = Kind::none;
  } else if (type != "auto") {
    fail("tool_choice.type", "invalid_value", "must be auto, any, tool or none, got \"{}\"", printable(type, 60));
  }
  chat.parallel_tool_calls = !inner.boolean("disable_parallel_tool_use").value_or(false);
}

void take_tools(Fields& fields, ChatInput& chat) {
  Json tools = Json::array();
  std::set<std::string> names;
  const Json* given = fields.take("tools");
  if (given != nullptr && !given->is_array())
    fail("tools", "invalid_type", "must be an array, got {}", kind_of(*given));
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    Fields tool((*given)[i], fmt::format("tools[{}]", i));
    const std::string type = tool.string("type").value_or("custom");
    if (type != "custom")
      fail(tool.path_of("type"), "unsupported_value", "is \"{}\": only tools with an input_schema can be offered here",
           printable(type, 60));
    if (tool.peek("input_schema") == nullptr)
      fail(tool.path_of("input_schema"), "missing_required_parameter", "is missing");
    openai::add_flat_tool(tool, "input_schema", tools, names);
  }
  if (!tools.empty()) chat.tools = std::make_shared<Json>(std::move(tools));
  take_choice(fields, names, chat);
}

// Off unless asked for, as Anthropic has it: clients that do not ask take the first block for the answer.
void take_thinking(Fields& fields, ChatInput& chat) {
  std::string type = "disabled";
  if (const Json* thinking = fields.take("thinking")) {
    Fields inner(*thinking, "thinking");
    type = inner.required("type");
    if (type != "enabled" && type != "disabled" && type != "adaptive")
      fail("thinking.type", "invalid_value", "must be enabled, disabled or adaptive, got \"{}\"", printable(type, 60));
    const auto budget = inner.integer("budget_tokens", 1, kMaxInt64);
    if (type == "enabled" && !budget) fail("thinking.budget_tokens", "missing_required_parameter", "is missing");
    if (type == "enabled") chat.thinking_budget = budget;
    if (inner.string("display").value_or("") == "omitted") chat.include_reasoning = false;
    inner.refuse_rest();
  }
  openai::set_variable(chat, "enable_thinking", type != "disabled");
  if (type == "disabled") chat.include_reasoning = false;
}

// `output_config`: how hard to think, and what the text must be.
void take_config(Fields& fields, const openai::RequestLimits& limits, openai::CompletionRequest& request) {
  const Json* config = fields.take("output_config");
  if (config == nullptr) return;
  Fields inner(*config, "output_config");
  if (const auto effort = inner.string("effort"))
    openai::set_effort(*request.chat, *effort == "max" ? "xhigh" : *effort, "output_config.effort");
  if (const Json* format = inner.take("format"))
    request.generation.structured = openai::read_flat_format(*format, "output_config.format", limits);
  inner.refuse_rest();
}

// What both endpoints have.
openai::CompletionRequest parse_shared(Fields& fields, const openai::RequestLimits& limits) {
  openai::CompletionRequest request;
  request.id_prefix = "msg_";
  request.make_writer = make_message_writer;
  request.model = fields.string("model").value_or("");
  ChatInput chat;
  chat.messages = take_conversation(fields);
  // An answer that was begun is gone on with.
  chat.continue_final_message =
      chat.last_role() == "assistant" && !chat.messages->back().contains("tool_calls") && !chat.last_text().empty();
  chat.add_generation_prompt = !chat.continue_final_message;
  take_tools(fields, chat);
  take_thinking(fields, chat);
  request.chat = std::move(chat);
  take_config(fields, limits, request);
  return request;
}

}  // namespace

openai::CompletionRequest parse_request(std::string_view body, const openai::RequestLimits& limits,
                                        const CancelFlag* cancelled) {
  const Json json = openai::parse_body(body, limits, cancelled);
  Fields fields(json, openai::kMessagesEndpoint, limits);
  openai::CompletionRequest request = parse_shared(fields, limits);
  request.max_tokens = fields.integer("max_tokens");
  if (!request.max_tokens) fail("max_tokens", "missing_required_parameter", "is missing");
  openai::take_drawing(fields, limits.sampling, request.generation);
  request.generation.stop = fields.strings("stop_sequences", limits);
  request.output.stream = fields.boolean("stream").value_or(false);
  openai::check_other_parameters(fields);
  return request;
}

openai::CompletionRequest parse_count_request(std::string_view body, const openai::RequestLimits& limits,
                                              const CancelFlag* cancelled) {
  const Json json = openai::parse_body(body, limits, cancelled);
  Fields fields(json, openai::kCountEndpoint, limits);
  openai::CompletionRequest request = parse_shared(fields, limits);
  openai::check_other_parameters(fields);
  return request;
}

}  // namespace ingot::server::anthropic
