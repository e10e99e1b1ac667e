#include "server/openai/tools.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/printable.h"
#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxFunctionName = 128;

void check_name(const std::string& name, const std::string& path) {
  if (name.empty()) fail(path, "invalid_value", "may not be empty");
  if (name.size() > kMaxFunctionName)
    fail(path, "string_above_max_length", "may have at most {} bytes, got {}", kMaxFunctionName, name.size());
  for (const char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.' && c != ':')
      fail(path, "invalid_value", "may have letters, digits, '_', '-', '.' and ':' only, got \"{}\"", printable(name));
}

// Returns its name.
std::string check_function(Fields& fields, const char* schema) {
  const std::string name = fields.required("name");
  check_name(name, fields.path_of("name"));
  fields.string("description");
  fields.boolean("strict");
  const Json* parameters = fields.take(schema);
  if (parameters != nullptr && !parameters->is_object())
    fail(fields.path_of(schema), "invalid_type", "must be a JSON schema, an object, got {}", kind_of(*parameters));
  return name;
}

void add_name(std::set<std::string>& names, const std::string& name, const std::string& path) {
  if (!names.insert(name).second) fail(path, "invalid_value", "is \"{}\", as that of another tool", printable(name));
}

// Returns the function's name.
std::string check_tool(const Json& tool, const std::string& path) {
  Fields fields(tool, path);
  const std::optional<std::string> type = fields.string("type");
  if (!type) fail(path + ".type", "missing_required_parameter", "is missing");
  if (*type != "function")
    fail(path + ".type", "unsupported_value", "is \"{}\": only functions can be offered here", printable(*type));
  const Json* function = fields.take("function");
  if (function == nullptr) fail(path + ".function", "missing_required_parameter", "is missing");
  Fields inner(*function, path + ".function");
  return check_function(inner, "parameters");
}

ToolChoice read_choice(const Json& choice, const std::set<std::string>& names) {
  using Kind = ToolChoice::Kind;
  if (choice.is_string()) {
    for (const auto& [word, kind] :
         {std::pair{"auto", Kind::automatic}, {"none", Kind::none}, {"required", Kind::required}})
      if (choice == word) {
        if (kind == Kind::required && names.empty())
          fail("tool_choice", "invalid_value", "is \"required\", but there are no tools");
        return {.kind = kind, .name = {}};
      }
    fail("tool_choice", "invalid_value", "must be \"auto\", \"none\", \"required\" or a function, got \"{}\"",
         printable(choice.get<std::string>()));
  }
  Fields fields(choice, "tool_choice");
  const std::optional<std::string> type = fields.string("type");
  if (!type) fail("tool_choice.type", "missing_required_parameter", "is missing");
  if (*type != "function")
    fail("tool_choice.type", "unsupported_value", "is \"{}\": only a function can be chosen here", printable(*type));
  const Json* function = fields.take("function");
  if (function == nullptr) fail("tool_choice.function", "missing_required_parameter", "is missing");
  Fields inner(*function, "tool_choice.function");
  const std::optional<std::string> name = inner.string("name");
  if (!name) fail("tool_choice.function.name", "missing_required_parameter", "is missing");
  check_chosen(*name, names, "tool_choice.function.name");
  return {.kind = Kind::named, .name = *name};
}

// How many tokens the reasoning may have, under any of its names: thinking_token_budget (vLLM), reasoning_budget_tokens
// and thinking_budget_tokens (llama-server), and the variable of templates that tell the model of it.
std::optional<int64_t> take_thinking_budget(Fields& fields, const ChatInput& chat) {
  std::optional<int64_t> budget;
  for (const char* name : {"thinking_token_budget", "reasoning_budget_tokens", "thinking_budget_tokens"})
    if (const auto given = fields.integer(name, -1, std::numeric_limits<int64_t>::max()); given && !budget)
      budget = given;
  if (!budget && chat.template_variables) {
    const auto given = chat.template_variables->find("thinking_budget");
    if (given != chat.template_variables->end() && given->is_number_integer()) budget = given->get<int64_t>();
  }
  return budget && *budget < 0 ? std::nullopt : budget;
}

}  // namespace

void take_tools(Fields& fields, Json& body, ChatInput& chat) {
  std::set<std::string> names;
  if (const Json* tools = fields.take("tools")) {
    if (!tools->is_array()) fail("tools", "invalid_type", "must be an array, got {}", kind_of(*tools));
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      const std::string name = check_tool((*tools)[i], path);
      add_name(names, name, path + ".function.name");
    }
    if (!tools->empty()) chat.tools = std::make_shared<Json>(std::move(body["tools"]));
  }
  if (const Json* choice = fields.take("tool_choice")) chat.tool_choice = read_choice(*choice, names);
  chat.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
}

void take_reasoning(Fields& fields, ChatInput& chat) {
  chat.include_reasoning = fields.boolean("include_reasoning").value_or(true);
  chat.thinking_budget = take_thinking_budget(fields, chat);
  if (const auto effort = fields.string("reasoning_effort")) set_effort(chat, *effort, "reasoning_effort");
}

void add_flat_tool(Fields& function, const char* schema, Json& tools, std::set<std::string>& names) {
  Json put = Json::object();
  for (const char* name : {"name", "description", schema, "strict"})
    if (const Json* value = function.peek(name)) put[name == schema ? "parameters" : name] = *value;
  add_name(names, check_function(function, schema), function.path_of("name"));
  tools.push_back({{"type", "function"}, {"function", std::move(put)}});
}

void check_chosen(const std::string& name, const std::set<std::string>& names, const std::string& path) {
  if (names.find(name) == names.end())
    fail(path, "invalid_value", "is \"{}\", which is not among the tools", printable(name));
}

void set_variable(ChatInput& chat, const char* name, Json value) {
  Json variables = chat.template_variables ? *chat.template_variables : Json::object();
  if (!variables.contains(name)) variables[name] = std::move(value);
  chat.template_variables = std::make_shared<Json>(std::move(variables));
}

void set_effort(ChatInput& chat, const std::string& effort, const std::string& path) {
  static const std::set<std::string> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh"};
  if (kEfforts.find(effort) == kEfforts.end())
    fail(path, "invalid_value", "must be none, minimal, low, medium, high or xhigh, got \"{}\"", printable(effort));
  set_variable(chat, "reasoning_effort", effort);
  if (effort == "none") set_variable(chat, "enable_thinking", false);
}

}  // namespace ingot::server::openai
