#pragma once

#include <string>
#include <string_view>

namespace ingot::server {

// The client's X-Request-Id when it is 1 to 128 visible ASCII characters without quotes, brackets, backslashes and the
// like (harmless in a header, a log, a shell and a page), else a new one.
std::string request_id(std::string_view sent);

}  // namespace ingot::server
