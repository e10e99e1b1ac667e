#include "server/responses/request.h"

#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "core/sampling_ranges.h"
#include "server/openai/errors.h"
#include "server/openai/parameters.h"
#include "server/openai/sampling_fields.h"
#include "server/openai/structured_fields.h"
#include "server/openai/tools.h"
#include "server/responses/answer.h"
#include "server/responses/conversation.h"

namespace ingot::server::responses {
namespace {

using Json = nlohmann::ordered_json;
using openai::ChatInput;
using openai::fail;
using openai::Fields;
using openai::kind_of;
using openai::ToolChoice;

Json or_null(const Json* value) { return value == nullptr ? Json() : *value; }

// A word out of a list.
std::string one_of(Fields& fields, const char* name, std::initializer_list<std::string_view> words) {
  const std::optional<std::string> word = fields.string(name);
  if (!word) return std::string(*words.begin());
  for (const std::string_view known : words)
    if (*word == known) return *word;
  std::string list;
  for (const std::string_view known : words) list += (list.empty() ? "" : ", ") + std::string(known);
  fail(fields.path_of(name), "invalid_value", "must be one of {}, got \"{}\"", list, printable(*word, 60));
}

ToolChoice read_choice(const Json& choice, const std::set<std::string>& names) {
  using Kind = ToolChoice::Kind;
  if (choice.is_string()) {
    if (choice == "auto") return {.kind = Kind::automatic, .name = {}};
    if (choice == "none") return {.kind = Kind::none, .name = {}};
    if (choice != "required")
      fail("tool_choice", "invalid_value", "must be \"auto\", \"none\", \"required\" or a function, got \"{}\"",
           printable(choice.get<std::string>(), 60));
    if (names.empty()) fail("tool_choice", "invalid_value", "is \"required\", but there are no tools");
    return {.kind = Kind::required, .name = {}};
  }
  Fields fields(choice, "tool_choice");
  const std::string type = fields.string("type").value_or("");
  if (type != "function")
    fail("tool_choice.type", "unsupported_value", "is \"{}\": only a function can be chosen here", printable(type, 60));
  std::string name = fields.required("name");
  openai::check_chosen(name, names, "tool_choice.name");
  return {.kind = Kind::named, .name = std::move(name)};
}

void take_tools(Fields& fields, ChatInput& chat, Json& echoed) {
  Json tools = Json::array();
  std::set<std::string> names;
  const Json* given = fields.take("tools");
  if (given != nullptr && !given->is_array())
    fail("tools", "invalid_type", "must be an array, got {}", kind_of(*given));
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    Fields tool((*given)[i], fmt::format("tools[{}]", i));
    const std::string type = tool.string("type").value_or("");
    if (type != "function")
      fail(tool.path_of("type"), "unsupported_value", "is \"{}\": only functions can be offered here",
           printable(type, 60));
    openai::add_flat_tool(tool, "parameters", tools, names);
  }
  echoed["tools"] = given == nullptr ? Json::array() : *given;
  if (!tools.empty()) chat.tools = std::make_shared<Json>(std::move(tools));
  const Json* choice = fields.take("tool_choice");
  if (choice != nullptr) chat.tool_choice = read_choice(*choice, names);
  echoed["tool_choice"] = choice == nullptr ? Json("auto") : *choice;
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
  echoed["parallel_tool_calls"] = chat.parallel_tool_calls;
}

// `reasoning`: how much. Summaries are not made: the reasoning itself comes back.
void take_reasoning(Fields& fields, ChatInput& chat, Json& echoed) {
  echoed["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
  const Json* reasoning = fields.take("reasoning");
  if (reasoning == nullptr) return;
  Fields inner(*reasoning, "reasoning");
  if (const auto effort = inner.string("effort")) {
    openai::set_effort(chat, *effort, "reasoning.effort");
    echoed["reasoning"]["effort"] = *effort;
  }
  for (const char* name : {"summary", "generate_summary", "context", "mode"}) inner.string(name);
  inner.refuse_rest();
}

void take_text(Fields& fields, const openai::RequestLimits& limits, StructuredOutput& structured, Json& echoed) {
  echoed["text"] = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
  const Json* text = fields.take("text");
  if (text == nullptr) return;
  Fields inner(*text, "text");
  if (const Json* format = inner.take("format")) {
    structured = openai::read_flat_format(*format, "text.format", limits);
    echoed["text"]["format"] = *format;
  }
  if (inner.string("verbosity").value_or("medium") != "medium")
    fail("text.verbosity", "unsupported_parameter", "is not supported by this server except as \"medium\"");
  inner.refuse_rest();
}

Json take_metadata(Fields& fields) {
  const Json* metadata = fields.take("metadata");
  if (metadata == nullptr) return Json::object();
  if (!metadata->is_object()) fail("metadata", "invalid_type", "must be an object, got {}", kind_of(*metadata));
  for (const auto& [key, value] : metadata->get_ref<const Json::object_t&>())
    if (!value.is_string())
      fail("metadata." + printable(key, 60), "invalid_type", "must be a string, got {}", kind_of(value));
  return *metadata;
}

// `include` and `top_logprobs`. What else can be included comes of tools that are not here, or is always there.
void take_logprobs(Fields& fields, openai::CompletionRequest& request) {
  openai::OutputOptions& output = request.output;
  if (const Json* include = fields.take("include")) {
    if (!include->is_array()) fail("include", "invalid_type", "must be a list of names, got {}", kind_of(*include));
    for (size_t i = 0; i < include->size(); ++i) {
      if (!(*include)[i].is_string())
        fail(fmt::format("include[{}]", i), "invalid_type", "must be a name, got {}", kind_of((*include)[i]));
      output.logprobs = output.logprobs || (*include)[i] == "message.output_text.logprobs";
    }
  }
  const auto top = fields.integer("top_logprobs");
  output.top_logprobs = static_cast<int32_t>(top.value_or(0));
  output.logprobs = output.logprobs || output.top_logprobs > 0;
  if (output.logprobs) request.generation.logprobs = output.top_logprobs;
}

void take_stream(Fields& fields, openai::OutputOptions& output) {
  output.stream = fields.boolean("stream").value_or(false);
  const Json* options = fields.take("stream_options");
  if (options == nullptr) return;
  Fields inner(*options, "stream_options");
  inner.boolean("include_obfuscation");  // padding against eavesdroppers; there is none to leave out
  inner.refuse_rest();
}

// What the model is to answer, as the request says it.
struct Sources {
  std::optional<std::string> previous, instructions;
  const Json* input;
};

// What came before, by its response's id, and then what is new.
Conversation read_conversation(const Sources& sources, const ResponseStore& store, const std::string& tenant) {
  Conversation conversation;
  if (const auto& previous = sources.previous) {
    const auto stored = store.find(tenant, *previous);
    if (!stored)
      throw openai::ApiError(404, fmt::format("no response with the id `{}` is kept", printable(*previous, 200)),
                             "previous_response_id", "previous_response_not_found");
    conversation.add(Json::parse(stored->items), "previous_response_id");
    conversation.add(Json::parse(stored->response)["output"], "previous_response_id");
  }
  if (sources.input != nullptr)
    conversation.add(*sources.input, "input");
  else if (!sources.previous)
    conversation.add("", "input");  // the model begins
  conversation.set_instructions(sources.instructions.value_or(""));
  if (conversation.messages->empty()) fail("input", "empty_array", "may not be empty");
  return conversation;
}

}  // namespace

openai::CompletionRequest parse_request(std::string_view body, const openai::RequestLimits& limits,
                                        const CancelFlag* cancelled, std::shared_ptr<ResponseStore> store,
                                        const std::string& tenant) {
  const Json json = openai::parse_body(body, limits, cancelled);
  Fields fields(json, openai::kResponsesEndpoint, limits);
  openai::CompletionRequest request;
  request.id_prefix = "resp_";
  request.model = fields.string("model").value_or("");
  openai::take_drawing(fields, limits.sampling, request.generation);
  request.max_tokens = fields.integer("max_output_tokens");
  take_stream(fields, request.output);
  take_logprobs(fields, request);

  const Sources sources{.previous = fields.string("previous_response_id"),
                        .instructions = fields.string("instructions"),
                        .input = fields.take("input")};
  Json echoed = {{"background", false},
                 {"instructions", sources.instructions ? Json(*sources.instructions) : Json()},
                 {"metadata", take_metadata(fields)},
                 {"previous_response_id", sources.previous ? Json(*sources.previous) : Json()}};
  ChatInput chat;
  chat.param = "input";
  take_tools(fields, chat, echoed);
  take_reasoning(fields, chat, echoed);
  take_text(fields, limits, request.generation.structured, echoed);

  const std::string truncation = one_of(fields, "truncation", {"disabled", "auto"});
  if (truncation == "auto") request.truncate_prompt = -1;
  const bool keep = fields.boolean("store").value_or(true);
  echoed.update({{"max_output_tokens", request.max_tokens ? Json(*request.max_tokens) : Json()},
                 {"max_tool_calls", or_null(fields.peek("max_tool_calls"))},
                 {"prompt_cache_key", or_null(fields.peek("prompt_cache_key"))},
                 {"safety_identifier", or_null(fields.peek("safety_identifier"))},
                 {"service_tier", "default"},
                 {"store", keep},
                 {"temperature", as_written(request.generation.sampling.temperature)},
                 {"top_logprobs", request.output.top_logprobs},
                 {"top_p", as_written(request.generation.sampling.top_p)},
                 {"truncation", truncation},
                 {"user", or_null(fields.peek("user"))}});
  openai::check_other_parameters(fields);
  const Conversation conversation = read_conversation(sources, *store, tenant);
  chat.messages = conversation.messages;
  request.chat = std::move(chat);

  ResponseFrame frame{
      .echoed = openai::dump(echoed), .items = conversation.items, .store = keep ? store : nullptr, .tenant = tenant};
  constexpr uint64_t kTimes = 3;  // in a stream: when it is created, in progress and at its end
  request.output.repeated_bytes = frame.echoed.size() * (request.output.stream ? kTimes : 1);
  request.make_writer = [frame = std::move(frame)](openai::AnswerContext context) {
    return make_response_writer(std::move(context), frame);
  };
  return request;
}

}  // namespace ingot::server::responses
