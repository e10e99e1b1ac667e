#pragma once

#include <string_view>

#include "server/http.h"

namespace ingot::server {

// Whose client reads an error:
//   openai:    {"error": {"message", "type", "param", "code"}}
//   anthropic: {"type": "error", "error": {"type", "message"}, "request_id"}
enum class ErrorShape { openai, anthropic };

// Anthropic's clients are known by the header `anthropic-version`, which they always send, or by the path.
ErrorShape error_shape(const HttpRequest& request);

// "invalid_request_error", "server_error", ...: the error type that goes with a status.
std::string_view error_type(int status, ErrorShape shape = ErrorShape::openai);

struct ErrorText {
  int status = 500;
  std::string_view message;
  std::string_view param = {};  // empty ones are written as null
  std::string_view code = {};
};
// One line of JSON; invalid UTF-8 in it is replaced. `request_id` is part of Anthropic's.
std::string error_json(const ErrorText& error, ErrorShape shape = ErrorShape::openai, std::string_view request_id = {});

HttpReply error_reply(const ErrorText& error, ErrorShape shape = ErrorShape::openai, std::string_view request_id = {});

}  // namespace ingot::server
