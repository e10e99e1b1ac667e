#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace ingot {

struct Dialect;

// A conversation about tools for the model's chat template. What the template does itself is left to it. One that does
// not say what the tools are gets them in the system message (or the first of the user, where it has none), with how to
// call them in the dialect; one that knows no calls gets them as the text of their message, and results as what the
// user says. `tools` may be null: none are offered.
nlohmann::ordered_json tell_tools(const nlohmann::ordered_json& messages, const nlohmann::ordered_json* tools,
                                  const Dialect& dialect, std::string_view template_source);

}  // namespace ingot
