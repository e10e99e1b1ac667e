#pragma once

#include <string>
#include <string_view>

#include "core/cancel.h"
#include "server/http.h"
#include "server/openai/served_model.h"

namespace ingot::server::anthropic {

// POST /v1/messages/count_tokens.
HttpReply count_tokens(const openai::ServedModel& model, std::string_view body, const CancelFlag* cancelled);

// GET /v1/models and /v1/models/{id} for Anthropic's clients. `loaded` in seconds since 1970.
HttpReply list_models(const openai::ServedModel& model, int64_t loaded);
HttpReply show_model(const openai::ServedModel& model, const std::string& name, int64_t loaded);

}  // namespace ingot::server::anthropic
