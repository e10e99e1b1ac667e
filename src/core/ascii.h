#pragma once

#include <string>

namespace ingot {

// A to Z become a to z; other bytes stay, whatever the locale.
inline std::string ascii_lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

}  // namespace ingot
