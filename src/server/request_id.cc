#include "server/request_id.h"

#include <fmt/format.h>

#include <random>

#include "server/ascii.h"

namespace ingot::server {

std::string request_id(std::string_view sent) {
  constexpr size_t kLongest = 128;
  if (!sent.empty() && sent.size() <= kLongest && is_visible(sent) &&
      sent.find_first_of("\"'`<>()[]{}\\&$") == std::string_view::npos)
    return std::string(sent);
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return fmt::format("req-{:016x}{:016x}", random(), random());
}

}  // namespace ingot::server
