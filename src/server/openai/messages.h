#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// Reads and checks `messages` and what goes with them (add_generation_prompt, continue_final_message,
// chat_template_kwargs, add_special_tokens). Which roles there are is left to the model's template. `fields` are those
// of `body`, out of which the conversation is moved.
ChatInput take_chat_input(Fields& fields, nlohmann::ordered_json& body);

}  // namespace ingot::server::openai
