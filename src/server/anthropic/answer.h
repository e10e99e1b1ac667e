#pragma once

#include <memory>

#include "server/openai/answer.h"

namespace ingot::server::anthropic {

// The answer of /v1/messages: blocks of thinking, text and calls, whole or as the events of their making.
std::unique_ptr<openai::AnswerWriter> make_message_writer(openai::AnswerContext context);

}  // namespace ingot::server::anthropic
