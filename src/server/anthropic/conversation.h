#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "server/openai/body.h"

namespace ingot::server::anthropic {

// `system` and `messages`, checked and put as chat completions have them: results of tools are messages of their own,
// what one side says in a row is one message. Throws ApiError.
std::shared_ptr<nlohmann::ordered_json> take_conversation(openai::Fields& fields);

}  // namespace ingot::server::anthropic
