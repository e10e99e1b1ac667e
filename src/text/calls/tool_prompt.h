#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace ingot {

// Whether a chat template says what the model's tools are.
bool template_knows_tools(std::string_view source);

// A conversation about tools for a template that knows none: what they are, and that calls are written as the dialect
// `json` has them, stands in the system message (the first of the user, where the template has none); calls become the
// text of their message, results what the user says. `tools` may be null: none are offered.
nlohmann::ordered_json tell_tools(const nlohmann::ordered_json& messages, const nlohmann::ordered_json* tools,
                                  std::string_view source);

}  // namespace ingot
