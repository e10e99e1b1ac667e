#include "server/cors.h"

#include <algorithm>

#include "core/error.h"
#include "server/ascii.h"

namespace ingot::server {
namespace {

// Browsers send scheme and host in lower case, the rest never.
bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == std::string_view::npos || scheme == 0 || scheme + 3 == text.size()) return false;
  const std::string_view host = text.substr(scheme + 3);
  return is_visible(text) && host.find_first_of("/?#@,") == std::string_view::npos;
}

// A list of header names, as a browser asks for them; anything else is not repeated back.
bool is_header_list(std::string_view text) {
  return !text.empty() && text.size() <= 2048 && std::all_of(text.begin(), text.end(), [](char c) {
    return is_alpha(c) || is_digit(c) || std::string_view("-_, ").find(c) != std::string_view::npos;
  });
}

}  // namespace

Cors::Cors(const std::vector<std::string>& origins) {
  for (const std::string& origin : origins) {
    if (origin == "*") {
      any_ = true;
    } else if (origin == "null" || is_origin(origin)) {
      origins_.push_back(origin);
    } else {
      throw_error(ErrorKind::bad_call,
                  "--cors-origin {}: must be `*` or an origin such as https://example.com:8080, without a path",
                  origin);
    }
  }
}

bool Cors::allows(std::string_view origin) const {
  return any_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void Cors::add_headers(std::string_view origin, std::vector<std::pair<std::string, std::string>>& headers) const {
  if (!any_ && origins_.empty()) return;
  // The reply differs by origin even for a request that has none: caches must know.
  if (!any_) headers.emplace_back("Vary", "Origin");
  if (origin.empty() || !allows(origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", any_ ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
}

std::optional<HttpReply> Cors::preflight(const HttpRequest& request) const {
  if (!any_ && origins_.empty()) return std::nullopt;
  if (request.method != "OPTIONS" || request.header("origin").empty() ||
      request.header("access-control-request-method").empty())
    return std::nullopt;
  HttpReply reply;
  reply.status = 204;
  reply.content_type.clear();
  if (!allows(request.header("origin"))) return reply;  // without the headers the browser refuses
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  const std::string_view asked = request.header("access-control-request-headers");
  reply.headers.emplace_back("Access-Control-Allow-Headers",
                             is_header_list(asked) ? std::string(asked) : "Authorization, Content-Type, X-Request-Id");
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

}  // namespace ingot::server
