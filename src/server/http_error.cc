#include "server/http_error.h"

#include <nlohmann/json.hpp>

namespace ingot::server {
namespace {

nlohmann::ordered_json text_or_null(std::string_view text) {
  if (text.empty()) return nullptr;
  return std::string(text);
}

}  // namespace

std::string_view error_type(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 504: return "timeout_error";
    default: return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string error_json(int status, std::string_view message, std::string_view param, std::string_view code) {
  const nlohmann::ordered_json body = {{"error",
                                        {{"message", std::string(message)},
                                         {"type", std::string(error_type(status))},
                                         {"param", text_or_null(param)},
                                         {"code", text_or_null(code)}}}};
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

HttpReply error_reply(int status, std::string_view code, std::string_view message) {
  return {.status = status, .body = error_json(status, message, {}, code)};
}

}  // namespace ingot::server
