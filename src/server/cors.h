#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace ingot::server {

// Which web pages of other origins may call the API from a browser. Without any origin no CORS header is ever sent.
class Cors {
 public:
  // Each origin is `*` or `scheme://host[:port]`, as browsers send it. Throws Error.
  explicit Cors(const std::vector<std::string>& origins);

  // Adds the headers of an ordinary reply to a request with this Origin (which may be empty).
  void add_headers(std::string_view origin, std::vector<std::pair<std::string, std::string>>& headers) const;
  // The answer to a preflight; nothing when the request is none, or no origin is allowed at all.
  std::optional<HttpReply> preflight(const HttpRequest& request) const;
  bool allows(std::string_view origin) const;

 private:
  bool any_ = false;
  std::vector<std::string> origins_;
};

}  // namespace ingot::server
