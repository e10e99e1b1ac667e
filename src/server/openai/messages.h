#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// Reads and checks `messages` and what goes with them (add_generation_prompt, continue_final_message,
// chat_template_kwargs, add_special_tokens). Which roles there are is left to the model's template.
ChatInput take_chat_input(Fields& fields);

}  // namespace ingot::server::openai
