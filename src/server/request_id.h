#pragma once

#include <string>
#include <string_view>

namespace ingot::server {

// The client's X-Request-Id when it is 1 to 128 visible ASCII characters (safe in a log and in a header), else a new
// one.
std::string request_id(std::string_view sent);

}  // namespace ingot::server
