#include "server/request_id.h"

#include <fmt/format.h>

#include "core/random.h"
#include "server/ascii.h"

namespace ingot::server {

std::string request_id(std::string_view sent) {
  constexpr size_t kLongest = 128;
  if (!sent.empty() && sent.size() <= kLongest && is_visible(sent) &&
      sent.find_first_of("\"'`<>()[]{}\\&$") == std::string_view::npos)
    return std::string(sent);
  return fmt::format("req-{:016x}{:016x}", random_word(), random_word());
}

}  // namespace ingot::server
