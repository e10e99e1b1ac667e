#include "server/anthropic/conversation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/openai/errors.h"
#include "server/openai/messages.h"

namespace ingot::server::anthropic {
namespace {

using Json = nlohmann::ordered_json;
using openai::fail;
using openai::Fields;
using openai::kind_of;

[[noreturn]] void refuse_block(const Fields& block, const std::string& type) {
  fail(block.path_of("type"), "unsupported_value", "is \"{}\", which is not supported here: send text",
       printable(type, 60));
}

// A text, or blocks of text joined by line ends.
std::string text_of(const Json& value, const std::string& path) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) fail(path, "invalid_type", "must be a string or a list of blocks, got {}", kind_of(value));
  std::string text;
  for (size_t i = 0; i < value.size(); ++i) {
    Fields block(value[i], fmt::format("{}[{}]", path, i));
    const std::string type = block.required("type");
    if (type != "text") refuse_block(block, type);
    if (i > 0) text += '\n';
    text += block.required("text");
  }
  return text;
}

class Turns {
 public:
  explicit Turns(Json& messages) : messages_(messages) {}

  void add(const Json& message, const std::string& path) {
    Fields fields(message, path);
    const std::string role = fields.required("role");
    openai::check_role(role, {"user", "assistant"}, fields.path_of("role"));
    const Json* content = fields.take("content");
    if (content == nullptr) fail(fields.path_of("content"), "missing_required_parameter", "is missing");
    if (content->is_string()) return add_text(role, content->get_ref<const std::string&>());
    if (!content->is_array())
      fail(fields.path_of("content"), "invalid_type", "must be a string or a list of blocks, got {}",
           kind_of(*content));
    for (size_t i = 0; i < content->size(); ++i)
      add_block(role, (*content)[i], fmt::format("{}[{}]", fields.path_of("content"), i));
    if (content->empty() && role == "assistant") add_text(role, "");
  }

 private:
  void add_block(const std::string& role, const Json& json, const std::string& path) {
    Fields block(json, path);
    const std::string type = block.required("type");
    const bool assistant = role == "assistant";
    if (type == "text") {
      add_text(role, block.required("text"));
    } else if (type == "tool_result" && !assistant) {
      add_result(block);
    } else if (type == "tool_use" && assistant) {
      add_call(block);
    } else if (type == "thinking" && assistant) {
      const std::string thought = block.required("thinking");
      if (!thought.empty()) append(turn(role), "reasoning_content", thought);
    } else if (type == "redacted_thinking" && assistant) {
      return;  // nothing in it that a model could read
    } else {
      refuse_block(block, type);
    }
  }

  void add_text(const std::string& role, const std::string& text) { append(turn(role), "content", text); }

  void add_result(Fields& block) {
    const std::string id = block.required("tool_use_id");
    const Json* content = block.take("content");
    block.boolean("is_error");  // the text says it too, and templates have no word for it
    messages_.push_back({{"role", "tool"},
                         {"content", content == nullptr ? "" : text_of(*content, block.path_of("content"))},
                         {"tool_call_id", id}});
  }

  void add_call(Fields& block) {
    const std::string id = block.required("id"), name = block.required("name");
    const Json* input = block.take("input");
    if (input != nullptr && !input->is_object())
      fail(block.path_of("input"), "invalid_type", "must be an object, got {}", kind_of(*input));
    Json& message = turn("assistant");
    if (!message.contains("tool_calls")) message["tool_calls"] = Json::array();
    message["tool_calls"].push_back(
        {{"id", id},
         {"type", "function"},
         {"function", {{"name", name}, {"arguments", input == nullptr ? Json::object() : *input}}}});
  }

  static void append(Json& message, const char* name, const std::string& text) {
    Json& value = message[name];
    if (value.is_null())
      value = text;
    else
      value.get_ref<std::string&>() += "\n" + text;
  }

  Json& turn(const std::string& role) {
    if (messages_.empty() || messages_.back()["role"] != role)
      messages_.push_back({{"role", role}, {"content", nullptr}});
    return messages_.back();
  }

  Json& messages_;
};

}  // namespace

std::shared_ptr<Json> take_conversation(Fields& fields) {
  auto messages = std::make_shared<Json>(Json::array());
  if (const Json* system = fields.take("system"))
    messages->push_back({{"role", "system"}, {"content", text_of(*system, "system")}});
  const Json* given = fields.take("messages");
  if (given == nullptr) fail("messages", "missing_required_parameter", "is missing");
  if (!given->is_array()) fail("messages", "invalid_type", "must be an array, got {}", kind_of(*given));
  if (given->empty()) fail("messages", "empty_array", "may not be empty");
  Turns turns(*messages);
  for (size_t i = 0; i < given->size(); ++i) turns.add((*given)[i], fmt::format("messages[{}]", i));
  if (messages->empty() || messages->back()["role"] == "system")
    fail("messages", "invalid_value", "hold no text: there is nothing to answer");
  return messages;
}

}  // namespace ingot::server::anthropic
