#include "text/calls/tool_prompt.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "text/calls/call_grammar.h"

namespace ingot {
namespace {

using ChatJson = nlohmann::ordered_json;

constexpr std::string_view kAsk = "You can call functions. To call one, answer with nothing but";

std::string dump_line(const ChatJson& json) { return json.dump(-1, ' ', false, ChatJson::error_handler_t::replace); }

const ChatJson& function_of(const ChatJson& call) {
  const auto inner = call.find("function");
  return inner != call.end() && inner->is_object() ? *inner : call;
}

std::string string_at(const ChatJson& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string example_arguments(const CallGrammar& grammar) {
  if (grammar.arguments == CallGrammar::Arguments::python) return "parameter='value'";
  if (grammar.arguments == CallGrammar::Arguments::json) return R"({"parameter": "value"})";
  const Fields& fields = grammar.fields;
  const std::string line = fields.lines ? "\n" : "";
  std::string text(fields.key_open);
  text += "parameter" + std::string(fields.key_close) + std::string(fields.between) + std::string(fields.value_open);
  return text + line + "value" + line + std::string(fields.value_close) + "\n";
}

std::string describe(const ChatJson& tools, const Dialect& dialect, std::string_view source) {
  static const ChatJson kExample = {{{"name", "function_name"}}};
  const CallGrammar grammar = make_call_grammar(dialect, source, kExample);
  const CallGrammar::Tag& tag = grammar.tags.front();
  std::string text(kAsk);
  text +=
      "\n" + grammar.open + tag.begin + example_arguments(grammar) + tag.end + grammar.close + "\nThe functions are:";
  for (const ChatJson& tool : tools) {
    ChatJson function = function_of(tool);
    if (function.is_object()) function.erase("strict");
    text += "\n" + dump_line(function);
  }
  return text;
}

void add_text(ChatJson& message, const std::string& text, bool before = false) {
  const std::string own = string_at(message, "content");
  if (text.empty()) return;
  message["content"] = own.empty() ? text : before ? text + "\n\n" + own : own + "\n\n" + text;
}

// Calls and their results as text.
class Retelling {
 public:
  void add(const ChatJson& message) {
    const std::string role = string_at(message, "role");
    if (role == "tool" || role == "function") return add_result(message);
    told.push_back(message);
    results_ = false;
    if (!message.is_object()) return;
    if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array()) add_calls(*calls);
    told.back().erase("tool_calls");
  }

  ChatJson told = ChatJson::array();

 private:
  void add_result(const ChatJson& message) {
    const auto name = names_.find(string_at(message, "tool_call_id"));
    const std::string of = name == names_.end() ? string_at(message, "name") : name->second;
    const std::string result = "Result" + (of.empty() ? "" : " of " + of) + ": " + string_at(message, "content");
    // Many templates insist on turns of user and assistant: results that follow each other are one message.
    if (results_)
      add_text(told.back(), result);
    else
      told.push_back({{"role", "user"}, {"content", result}});
    results_ = true;
  }

  void add_calls(const ChatJson& calls) {
    std::string text;
    for (const ChatJson& call : calls) {
      if (!call.is_object()) continue;
      const ChatJson& function = function_of(call);
      const std::string name = string_at(function, "name");
      names_[string_at(call, "id")] = name;
      const auto arguments = function.find("arguments");
      const ChatJson given = arguments == function.end() ? ChatJson::object() : *arguments;
      if (!text.empty()) text += "\n";
      text += dump_line({{"name", name}, {"arguments", given}});
    }
    add_text(told.back(), text);
  }

  std::map<std::string, std::string> names_;  // of functions, by the id of the call
  bool results_ = false;                      // are what the last message has
};

}  // namespace

ChatJson tell_tools(const ChatJson& messages, const ChatJson* tools, const Dialect& dialect, std::string_view source) {
  ChatJson told = messages;
  if (source.find("tool_calls") == source.npos) {
    Retelling retelling;
    for (const ChatJson& message : messages) retelling.add(message);
    told = std::move(retelling.told);
  }
  if (tools == nullptr || tools->empty() || source.find("tools") != source.npos) return told;

  const std::string text = describe(*tools, dialect, source);
  const bool has_system = source.find("System role not supported") == source.npos;
  if (has_system && !told.empty() && string_at(told[0], "role") == "system") {
    add_text(told[0], text);
    return told;
  }
  if (has_system) {
    told.insert(told.begin(), ChatJson::object({{"role", "system"}, {"content", text}}));
    return told;
  }
  for (ChatJson& message : told) {
    if (string_at(message, "role") != "user") continue;
    add_text(message, text, true);
    break;
  }
  return told;
}

}  // namespace ingot
