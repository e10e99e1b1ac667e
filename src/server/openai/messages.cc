#include "server/openai/messages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/nearest_name.h"
#include "core/printable.h"
#include "server/openai/errors.h"
#include "server/openai/tools.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

void check_part(const Json& part, const std::string& path) {
  if (part.is_string()) return;  // some clients send plain strings, and templates read them
  Fields fields(part, path);
  const std::optional<std::string> type = fields.string("type");
  if (!type) fail(path + ".type", "missing_required_parameter", "is missing");
  if (*type != "text")
    fail(path + ".type", "unsupported_value", "is \"{}\": only text can be sent to this model", printable(*type));
  if (!fields.string("text")) fail(path + ".text", "missing_required_parameter", "is missing");
}

void check_message(const Json& message, const std::string& path) {
  Fields fields(message, path);
  const std::optional<std::string> role = fields.string("role");
  if (!role) fail(path + ".role", "missing_required_parameter", "is missing");
  if (role->empty()) fail(path + ".role", "invalid_value", "may not be empty");
  const Json* calls = fields.take("tool_calls");
  if (calls != nullptr && !calls->is_array())
    fail(path + ".tool_calls", "invalid_type", "must be an array, got {}", kind_of(*calls));
  for (size_t i = 0; calls != nullptr && i < calls->size(); ++i)
    Fields((*calls)[i], fmt::format("{}.tool_calls[{}]", path, i));
  for (const char* name : {"name", "tool_call_id", "refusal", "reasoning_content", "reasoning"}) fields.string(name);
  for (const char* name : {"audio", "function_call"})
    if (fields.take(name) != nullptr)
      fail(fields.path_of(name), "unsupported_parameter", "is not supported by this server");

  const Json* content = fields.take("content");
  if (content == nullptr) {
    if (*role != "assistant") fail(path + ".content", "missing_required_parameter", "is missing");
  } else if (content->is_array()) {
    if (content->empty() && *role != "assistant") fail(path + ".content", "empty_array", "may not be empty");
    for (size_t i = 0; i < content->size(); ++i) check_part((*content)[i], fmt::format("{}.content[{}]", path, i));
  } else if (!content->is_string()) {
    fail(path + ".content", "invalid_type", "must be a string or a list of parts, got {}", kind_of(*content));
  }
}

std::string text_of(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  if (content.is_array())
    for (const Json& part : content) {
      if (&part != &content.front()) text += '\n';
      text += part.is_string() ? part.get<std::string>() : part.value("text", "");
    }
  return text;
}

// Templates differ in whether they read lists of parts; all of them read a string. Parts are joined as vLLM does.
void join_parts(Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) {
    message["content"] = nullptr;
  } else if (content->is_array()) {
    *content = text_of(*content);
  }
}

}  // namespace

void read_arguments(Json& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    if (!call.contains("function") || !call["function"].is_object() || !call["function"].contains("arguments"))
      continue;
    Json& arguments = call["function"]["arguments"];
    if (!arguments.is_string()) continue;
    try {
      Json parsed = parse_body(arguments.get_ref<const std::string&>());
      if (parsed.is_object()) arguments = std::move(parsed);
    } catch (const ApiError&) {
      continue;  // stays the text it was
    }
  }
}

void check_role(const std::string& role, const std::vector<std::string>& roles, const std::string& path) {
  if (std::find(roles.begin(), roles.end(), role) != roles.end()) return;
  const std::string near = nearest_name(role, roles);
  fail(path, "invalid_value", "is \"{}\", which is not a role here: {}", printable(role, 60),
       near.empty() ? fmt::format("use {}", fmt::join(roles, ", ")) : fmt::format("did you mean \"{}\"?", near));
}

void check_roles(const Json& messages, std::string_view template_source) {
  std::vector<std::string> roles = {"user", "assistant", "system", "developer", "tool", "function"};
  const auto mentions = [&](const std::string& word) { return template_source.find(word) != template_source.npos; };
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role = messages[i].value("role", "");
    if (std::find(roles.begin(), roles.end(), role) != roles.end()) continue;
    if (mentions("'" + role + "'") || mentions('"' + role + '"'))
      roles.push_back(role);
    else
      check_role(role, roles, fmt::format("messages[{}].role", i));
  }
}

ChatInput take_chat_input(Fields& fields, Json& body) {
  const Json* messages = fields.take("messages");
  if (messages == nullptr) fail("messages", "missing_required_parameter", "is missing");
  if (!messages->is_array()) fail("messages", "invalid_type", "must be an array, got {}", kind_of(*messages));
  if (messages->empty()) fail("messages", "empty_array", "may not be empty");
  auto checked = std::make_shared<Json>(std::move(body["messages"]));
  for (size_t i = 0; i < checked->size(); ++i) {
    check_message((*checked)[i], fmt::format("messages[{}]", i));
    join_parts((*checked)[i]);
    read_arguments((*checked)[i]);
  }

  ChatInput chat;
  chat.messages = std::move(checked);
  const std::optional<bool> generation_prompt = fields.boolean("add_generation_prompt");
  chat.continue_final_message = fields.boolean("continue_final_message").value_or(false);
  chat.add_generation_prompt = generation_prompt.value_or(!chat.continue_final_message);
  if (chat.continue_final_message && chat.add_generation_prompt)
    fail("continue_final_message", "invalid_value",
         "and add_generation_prompt exclude each other: set one of them to false");
  chat.add_special_tokens = fields.boolean("add_special_tokens").value_or(false);

  if (const Json* extra = fields.take("chat_template_kwargs")) {
    if (!extra->is_object()) fail("chat_template_kwargs", "invalid_type", "must be an object, got {}", kind_of(*extra));
    for (const char* name : {"messages", "tools", "chat_template", "add_generation_prompt", "continue_final_message"})
      if (extra->contains(name))
        fail(fmt::format("chat_template_kwargs.{}", name), "invalid_value", "may not be set here");
    if (!extra->empty()) chat.template_variables = std::make_shared<Json>(std::move(body["chat_template_kwargs"]));
  }
  take_tools(fields, body, chat);
  take_reasoning(fields, chat);
  return chat;
}

std::string ChatInput::last_role() const { return messages->back().value("role", ""); }

std::string ChatInput::last_text() const {
  const Json& last = messages->back();
  return last.contains("content") ? text_of(last["content"]) : "";
}

}  // namespace ingot::server::openai
