#pragma once

#include <string>
#include <string_view>

namespace ingot {

// A to Z become a to z; other bytes stay, whatever the locale.
inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace ingot
