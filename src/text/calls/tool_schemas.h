#pragma once

#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace ingot {

// What kinds of value a schema allows; several where it has a choice.
struct ValueKinds {
  bool string = false;
  bool number = false;
  bool boolean = false;
  bool null = false;
  bool structure = false;  // an object or array
};

// The functions that a model may call, and of what kind their parameters are: dialects that write values without quotes
// need to know.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  // An array of tools: OpenAI's {"type":"function","function":{"name","parameters"}}, or the inner object alone, with
  // its schema under "parameters" or "input_schema". Throws Error(bad_call).
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool empty() const { return functions_.empty(); }
  bool has(std::string_view function) const { return functions_.find(function) != functions_.end(); }
  const ValueKinds* find(std::string_view function, std::string_view parameter) const;  // null: it is not described

 private:
  using Parameters = std::map<std::string, ValueKinds, std::less<>>;
  std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace ingot
