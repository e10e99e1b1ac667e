#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

namespace ingot {

// The value of a JSON number that is an integer: 8192 and 8192.0, nothing that a double could not hold exactly. `Json`
// is a nlohmann::basic_json.
template <typename Json>
std::optional<int64_t> json_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.template get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.template get<int64_t>();
  if (value.is_number_float()) {
    const auto number = value.template get<double>();
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (std::fabs(number) <= kExact && number == std::floor(number)) return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

}  // namespace ingot
