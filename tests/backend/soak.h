#pragma once

#include <cstdlib>
#include <string_view>

namespace ingot::test {

// INGOT_SOAK=1: every product of formats, shapes and ways, and every kernel in each order of threads. Without it values
// meet in pairs, each at least once: what a fault needs to show itself.
inline bool soak() {
  static const bool asked = [] {
    const char* value = std::getenv("INGOT_SOAK");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return asked;
}

}  // namespace ingot::test
