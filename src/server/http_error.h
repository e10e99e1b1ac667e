#pragma once

#include <string_view>

#include "server/http.h"

namespace ingot::server {

// An error in OpenAI's shape: {"error":{"message","type","param","code"}}. The type follows from the status.
HttpReply error_reply(int status, std::string_view code, std::string_view message);

}  // namespace ingot::server
