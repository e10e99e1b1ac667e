#pragma once

#include <set>

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// `tools`, `tool_choice` and `parallel_tool_calls`. The tools are moved out of `body`.
void take_tools(Fields& fields, nlohmann::ordered_json& body, ChatInput& chat);
// `reasoning_effort`, which the template gets as a variable, `include_reasoning`, and the thinking budget.
void take_reasoning(Fields& fields, ChatInput& chat);

// The same for other APIs. A function that is described flatly, with its schema under the name `schema`, is checked and
// put among `tools` as chat completions have them; all of these throw ApiError naming `path` or what is below it.
void add_flat_tool(Fields& function, const char* schema, nlohmann::ordered_json& tools, std::set<std::string>& names);
void check_chosen(const std::string& name, const std::set<std::string>& names, const std::string& path);
void set_effort(ChatInput& chat, const std::string& effort, const std::string& path);
// A variable of the template, unless the request has set it.
void set_variable(ChatInput& chat, const char* name, nlohmann::ordered_json value);

}  // namespace ingot::server::openai
