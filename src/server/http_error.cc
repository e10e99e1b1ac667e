#include "server/http_error.h"

#include <nlohmann/json.hpp>

namespace ingot::server {
namespace {

const char* error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

HttpReply error_reply(int status, std::string_view code, std::string_view message) {
  const nlohmann::ordered_json error = {
      {"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", code}};
  HttpReply reply;
  reply.status = status;
  reply.body =
      nlohmann::ordered_json{{"error", error}}.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return reply;
}

}  // namespace ingot::server
