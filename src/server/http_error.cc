#include "server/http_error.h"

#include <nlohmann/json.hpp>

namespace ingot::server {
namespace {

nlohmann::ordered_json text_or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return std::string(text);
}

}  // namespace

ErrorShape error_shape(const HttpRequest& request) {
  constexpr std::string_view kMessages = "/v1/messages";
  const bool below = request.path.starts_with(kMessages) &&
                     (request.path.size() == kMessages.size() || request.path[kMessages.size()] == '/');
  return below || !request.header("anthropic-version").empty() ? ErrorShape::anthropic : ErrorShape::openai;
}

std::string_view error_type(int status, ErrorShape shape) {
  if (shape == ErrorShape::anthropic) {
    switch (status) {
      case 404: return "not_found_error";
      case 413: return "request_too_large";
      case 503: return "overloaded_error";
      default:
        if (status >= 500 && status != 504) return "api_error";
    }
  }
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string error_json(const ErrorText& error, ErrorShape shape, std::string_view request_id) {
  const std::string type(error_type(error.status, shape)), message(error.message);
  nlohmann::ordered_json body;
  if (shape == ErrorShape::anthropic) {
    body = {
        {"type", "error"}, {"error", {{"type", type}, {"message", message}}}, {"request_id", text_or_null(request_id)}};
  } else {
    body = {{"error",
             {{"message", message},
              {"type", type},
              {"param", text_or_null(error.param)},
              {"code", text_or_null(error.code)}}}};
  }
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(const ErrorText& error, ErrorShape shape, std::string_view request_id) {
  return {.status = error.status, .body = error_json(error, shape, request_id)};
}

}  // namespace ingot::server
