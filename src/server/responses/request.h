#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/openai/request.h"
#include "server/responses/store.h"

namespace ingot::server::responses {

// Reads the body of POST /v1/responses. What it continues (`previous_response_id`) is looked up among `tenant`'s in
// `store`, and the answer is put there. Throws ApiError, and Error (cancelled) soon after `cancelled` is set.
openai::CompletionRequest parse_request(std::string_view body, const openai::RequestLimits& limits,
                                        const CancelFlag* cancelled, std::shared_ptr<ResponseStore> store,
                                        const std::string& tenant);

}  // namespace ingot::server::responses
