#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// `tools`, `tool_choice` and `parallel_tool_calls`. The tools are moved out of `body`.
void take_tools(Fields& fields, nlohmann::ordered_json& body, ChatInput& chat);
// `reasoning_effort`, which the template gets as a variable, `include_reasoning`, and the thinking budget.
void take_reasoning(Fields& fields, ChatInput& chat);

}  // namespace ingot::server::openai
