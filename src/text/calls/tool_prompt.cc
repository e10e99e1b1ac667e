#include "text/calls/tool_prompt.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace ingot {
namespace {

using ChatJson = nlohmann::ordered_json;

constexpr std::string_view kAsk =
    "You can call functions. To call one, answer with a JSON object and nothing else:\n"
    "{\"name\": \"the function's name\", \"arguments\": {\"a parameter\": \"its value\"}}\n"
    "Several calls stand on lines of their own. The functions are:";

std::string text_of(const ChatJson& message) {
  const auto content = message.find("content");
  return content != message.end() && content->is_string() ? content->get<std::string>() : std::string();
}

const ChatJson& function_of(const ChatJson& call) {
  const auto inner = call.find("function");
  return inner != call.end() && inner->is_object() ? *inner : call;
}

std::string dump_line(const ChatJson& json) { return json.dump(-1, ' ', false, ChatJson::error_handler_t::replace); }

std::string describe(const ChatJson& tools) {
  std::string text(kAsk);
  for (const ChatJson& tool : tools) {
    ChatJson function = function_of(tool);
    if (function.is_object()) function.erase("strict");
    text += "\n" + dump_line(function);
  }
  return text;
}

void prepend(ChatJson& message, const std::string& text, bool before) {
  const std::string own = text_of(message);
  message["content"] = own.empty() ? text : before ? text + "\n\n" + own : own + "\n\n" + text;
}

}  // namespace

bool template_knows_tools(std::string_view source) { return source.find("tools") != source.npos; }

ChatJson tell_tools(const ChatJson& messages, const ChatJson* tools, std::string_view source) {
  ChatJson told = ChatJson::array();
  std::map<std::string, std::string> names;  // by the id of the call
  bool results = false;                      // the last message has some
  for (const ChatJson& message : messages) {
    const std::string role = message.value("role", "");
    if (role == "tool" || role == "function") {
      const auto name = names.find(message.contains("tool_call_id") && message["tool_call_id"].is_string()
                                       ? message["tool_call_id"].get<std::string>()
                                       : std::string());
      std::string result = "Result";
      if (name != names.end()) result += " of " + name->second;
      result += ": " + text_of(message);
      if (results)
        prepend(told.back(), result, false);
      else
        told.push_back({{"role", "user"}, {"content", result}});
      results = true;
      continue;
    }
    told.push_back(message);
    results = false;
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) continue;
    std::string text;
    for (const ChatJson& call : calls->is_array() ? *calls : ChatJson::array()) {
      if (!call.is_object()) continue;
      const ChatJson& function = function_of(call);
      const auto name = function.find("name");
      if (name == function.end() || !name->is_string()) continue;
      if (call.contains("id") && call["id"].is_string()) names[call["id"].get<std::string>()] = *name;
      const auto arguments = function.find("arguments");
      const ChatJson given = arguments == function.end() ? ChatJson::object() : *arguments;
      if (!text.empty()) text += "\n";
      text += dump_line({{"name", *name}, {"arguments", given}});
    }
    told.back().erase("tool_calls");
    prepend(told.back(), text, false);
  }
  if (tools == nullptr || tools->empty()) return told;

  const std::string text = describe(*tools);
  const bool has_system = source.find("System role not supported") == source.npos;
  if (has_system && !told.empty() && told[0].value("role", "") == "system")
    prepend(told[0], text, false);
  else if (has_system)
    told.insert(told.begin(), {{"role", "system"}, {"content", text}});
  else
    for (ChatJson& message : told)
      if (message.value("role", "") == "user") {
        prepend(message, text, true);
        break;
      }
  return told;
}

}  // namespace ingot
