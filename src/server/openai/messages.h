#pragma once

#include "server/openai/body.h"
#include "server/openai/request.h"

namespace ingot::server::openai {

// Reads and checks `messages` and what goes with them (add_generation_prompt, continue_final_message,
// chat_template_kwargs, add_special_tokens). `fields` are those of `body`, out of which the conversation is moved.
ChatInput take_chat_input(Fields& fields, nlohmann::ordered_json& body);

// Arguments of a message's tool calls that arrive as text, which is how clients send them back: templates want objects.
void read_arguments(nlohmann::ordered_json& message);

// 400 naming `path` and the nearest of `roles` when it is none of them.
void check_role(const std::string& role, const std::vector<std::string>& roles, const std::string& path);
// The same for every message, by OpenAI's roles and those that the model's template mentions.
void check_roles(const nlohmann::ordered_json& messages, std::string_view template_source);

}  // namespace ingot::server::openai
