#pragma once

#include <string_view>

#include "server/openai/request.h"

namespace ingot::server::anthropic {

// Read the bodies of POST /v1/messages and /v1/messages/count_tokens. Throw ApiError, and Error (cancelled) soon after
// `cancelled` is set.
openai::CompletionRequest parse_request(std::string_view body, const openai::RequestLimits& limits,
                                        const CancelFlag* cancelled);
openai::CompletionRequest parse_count_request(std::string_view body, const openai::RequestLimits& limits,
                                              const CancelFlag* cancelled);

}  // namespace ingot::server::anthropic
