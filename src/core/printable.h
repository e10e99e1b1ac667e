#pragma once

#include <string>
#include <string_view>

namespace ingot {

// A name out of an untrusted file, made fit for a one-line error: control and non-ASCII bytes escaped, length bounded.
inline std::string printable(std::string_view text, size_t limit = 80) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (out.size() >= limit) return out + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c < 0x7f) {
      out.push_back(static_cast<char>(c));
    } else {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return out;
}

}  // namespace ingot
