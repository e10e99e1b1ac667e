#pragma once

#include <string_view>

#include "server/http.h"
#include "server/openai/served_model.h"

namespace ingot::server::openai {

// POST /tokenize and /detokenize, in vLLM's shape.
HttpReply tokenize(const ServedModel& model, std::string_view body, const CancelFlag* cancelled);
HttpReply detokenize(const ServedModel& model, std::string_view body, const CancelFlag* cancelled);

// POST /apply-template, in llama-server's: the prompt that a conversation becomes.
HttpReply apply_template(const ServedModel& model, std::string_view body, const CancelFlag* cancelled);

}  // namespace ingot::server::openai
