#include "server/responses/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "core/random.h"
#include "server/openai/body.h"
#include "server/openai/errors.h"
#include "server/openai/messages.h"

namespace ingot::server::responses {
namespace {

using Json = nlohmann::ordered_json;
using openai::fail;
using openai::Fields;
using openai::kind_of;

// A text, or parts of it joined by line ends.
std::string text_of(Fields& fields, const char* name) {
  const Json* value = fields.take(name);
  const std::string path = fields.path_of(name);
  if (value == nullptr) fail(path, "missing_required_parameter", "is missing");
  if (value->is_string()) return value->get<std::string>();
  if (!value->is_array()) fail(path, "invalid_type", "must be a string or a list of parts, got {}", kind_of(*value));
  std::string text;
  for (size_t i = 0; i < value->size(); ++i) {
    Fields part((*value)[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.required("type");
    if (type != "input_text" && type != "output_text" && type != "text" && type != "refusal")
      fail(part.path_of("type"), "unsupported_value", "is \"{}\": only text can be sent to this model",
           printable(type, 60));
    if (i > 0) text += '\n';
    text += part.required(type == "refusal" ? "refusal" : "text");
  }
  return text;
}

// Of a reasoning item: the texts of its content, or of its summary.
std::string reasoning_texts(Fields& fields, const char* name) {
  const Json* parts = fields.take(name);
  if (parts == nullptr) return "";
  if (!parts->is_array()) fail(fields.path_of(name), "invalid_type", "must be a list, got {}", kind_of(*parts));
  std::string text;
  for (size_t i = 0; i < parts->size(); ++i) {
    Fields part((*parts)[i], fmt::format("{}[{}]", fields.path_of(name), i));
    if (i > 0) text += '\n';
    text += part.required("text");
  }
  return text;
}

Json listed(Fields& fields, const char* type, const char* id_prefix) {
  std::string id = fields.string("id").value_or("");
  return {{"id", id.empty() ? new_id(id_prefix) : std::move(id)}, {"type", type}, {"status", "completed"}};
}

// Puts items into a conversation, one by one.
class ItemReader {
 public:
  ItemReader(Json& items, Json& messages) : items_(items), messages_(messages) {}
  void add(const Json& item, const std::string& path);

 private:
  void add_message(Fields& fields);
  void add_reasoning(Fields& fields);
  void add_call(Fields& fields);
  void add_call_output(Fields& fields);
  void push(const std::string& role, std::string content);
  Json& assistant(bool fresh);  // the message being put together; fresh: another one

  Json& items_;
  Json& messages_;
};

void ItemReader::add(const Json& item, const std::string& path) {
  Fields fields(item, path);
  const std::string type = fields.string("type").value_or("message");
  if (type == "message") return add_message(fields);
  if (type == "reasoning") return add_reasoning(fields);
  if (type == "function_call") return add_call(fields);
  if (type == "function_call_output") return add_call_output(fields);
  fail(path + ".type", "unsupported_value",
       "is \"{}\": only message, reasoning, function_call and function_call_output items are supported",
       printable(type, 60));
}

void ItemReader::add_message(Fields& fields) {
  const std::string role = fields.required("role");
  openai::check_role(role, {"user", "assistant", "system", "developer"}, fields.path_of("role"));
  std::string text = text_of(fields, "content");
  const bool answered = role == "assistant";
  Json part = {{"type", answered ? "output_text" : "input_text"}, {"text", text}};
  if (answered) part.update({{"annotations", Json::array()}, {"logprobs", Json::array()}});
  items_.push_back(listed(fields, "message", "msg_"));
  items_.back().update({{"role", role}, {"content", Json::array({std::move(part)})}});
  if (!answered) return push(role, std::move(text));
  const bool thought = !messages_.empty() && messages_.back()["role"] == "assistant" &&
                       messages_.back()["content"].is_null() && !messages_.back().contains("tool_calls");
  assistant(!thought)["content"] = std::move(text);
}

// What was not written by this server has nothing in it that a template could take: encrypted or summed up.
void ItemReader::add_reasoning(Fields& fields) {
  const std::string text = reasoning_texts(fields, "content"), summary = reasoning_texts(fields, "summary");
  Json item = listed(fields, "reasoning", "rs_");
  item["summary"] = Json::array();
  if (!summary.empty()) item["summary"].push_back({{"type", "summary_text"}, {"text", summary}});
  item["content"] = Json::array();
  if (!text.empty()) {
    item["content"].push_back({{"type", "reasoning_text"}, {"text", text}});
    assistant(true)["reasoning_content"] = text;
  }
  items_.push_back(std::move(item));
}

void ItemReader::add_call(Fields& fields) {
  const std::string name = fields.required("name"), id = fields.required("call_id");
  const std::string arguments = fields.required("arguments");
  items_.push_back(listed(fields, "function_call", "fc_"));
  items_.back().update({{"call_id", id}, {"name", name}, {"arguments", arguments}});
  Json call = {
      {"tool_calls",
       Json::array({{{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}}})}};
  openai::read_arguments(call);
  Json& message = assistant(false);
  if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
  message["tool_calls"].push_back(std::move(call["tool_calls"][0]));
}

void ItemReader::add_call_output(Fields& fields) {
  const std::string id = fields.required("call_id");
  std::string output = text_of(fields, "output");
  items_.push_back(listed(fields, "function_call_output", "fco_"));
  items_.back().update({{"call_id", id}, {"output", output}});
  push("tool", std::move(output));
  messages_.back()["tool_call_id"] = id;
}

void ItemReader::push(const std::string& role, std::string content) {
  messages_.push_back({{"role", role}, {"content", std::move(content)}});
}

Json& ItemReader::assistant(bool fresh) {
  if (fresh || messages_.empty() || messages_.back()["role"] != "assistant")
    messages_.push_back({{"role", "assistant"}, {"content", nullptr}});
  return messages_.back();
}

}  // namespace

std::string new_id(const char* prefix) { return fmt::format("{}{:016x}{:016x}", prefix, random_word(), random_word()); }

Conversation::Conversation()
    : items(std::make_shared<Json>(Json::array())), messages(std::make_shared<Json>(Json::array())) {}

void Conversation::add(const Json& input, const std::string& path) {
  ItemReader reader(*items, *messages);
  if (input.is_string()) return reader.add({{"role", "user"}, {"content", input}}, path);
  if (!input.is_array()) fail(path, "invalid_type", "must be a string or a list of items, got {}", kind_of(input));
  for (size_t i = 0; i < input.size(); ++i) reader.add(input[i], fmt::format("{}[{}]", path, i));
}

void Conversation::set_instructions(const std::string& text) {
  std::string joined = text;
  size_t first = 0;
  for (; first < messages->size(); ++first) {
    const Json& role = (*messages)[first]["role"];
    if (role != "system" && role != "developer") break;
    if (!joined.empty()) joined += "\n\n";
    joined += (*messages)[first]["content"].get_ref<const std::string&>();
  }
  Json all = Json::array();
  if (first > 0 || !text.empty()) all.push_back({{"role", "system"}, {"content", std::move(joined)}});
  for (size_t i = first; i < messages->size(); ++i) all.push_back(std::move((*messages)[i]));
  *messages = std::move(all);
}

}  // namespace ingot::server::responses
