#pragma once

#include <string>

#include "ingot/llm.h"
#include "server/openai/request.h"
#include "text/chat_format.h"

namespace ingot::server::openai {

// Holds the answer to the tools where a request asks for that: `tool_choice` required or a function, strict functions.
// `in_reasoning`: the prompt has opened the model's reasoning. 400 where that cannot be had.
void hold_to_tools(const ChatFormat& format, const ChatInput& chat, bool in_reasoning, StructuredOutput& structured);

}  // namespace ingot::server::openai
