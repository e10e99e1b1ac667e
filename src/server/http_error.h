#pragma once

#include <string_view>

#include "server/http.h"

namespace ingot::server {

// "invalid_request_error", "server_error", ...: the error type that goes with a status.
std::string_view error_type(int status);

// The JSON text of an error; invalid UTF-8 in it is replaced. Empty `param` and `code` are written as null.
std::string error_json(int status, std::string_view message, std::string_view param = {}, std::string_view code = {});

// An error in OpenAI's shape: {"error":{"message","type","param","code"}}. The type follows from the status.
HttpReply error_reply(int status, std::string_view code, std::string_view message);

}  // namespace ingot::server
