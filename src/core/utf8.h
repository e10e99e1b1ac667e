#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

// One decoded character. `length` is its size in bytes, 1..4.
struct Utf8Char {
  char32_t code;
  uint32_t length;
};

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";  // U+FFFD

// Decodes the character at p[0..]. The text must be valid UTF-8 (see is_valid_utf8) and not empty.
inline Utf8Char decode_valid_utf8(const char* p) {
  const auto* b = reinterpret_cast<const unsigned char*>(p);
  if (b[0] < 0x80) return {b[0], 1};
  if (b[0] < 0xE0) return {static_cast<char32_t>((b[0] & 0x1F) << 6 | (b[1] & 0x3F)), 2};
  if (b[0] < 0xF0) return {static_cast<char32_t>((b[0] & 0x0F) << 12 | (b[1] & 0x3F) << 6 | (b[2] & 0x3F)), 3};
  return {static_cast<char32_t>((b[0] & 0x07) << 18 | (b[1] & 0x3F) << 12 | (b[2] & 0x3F) << 6 | (b[3] & 0x3F)), 4};
}

// What lies at the start of arbitrary bytes.
enum class Utf8Status {
  valid,       // a whole character of `length` bytes
  incomplete,  // the text ends inside a character that more bytes could complete; `length` is all that is left
  invalid,     // no character starts here; `length` is the maximal subpart, to be replaced by one U+FFFD
};
struct Utf8Step {
  Utf8Status status;
  uint32_t length;  // 1..4
};
Utf8Step inspect_utf8(std::string_view text);  // text must not be empty

bool is_valid_utf8(std::string_view text);

// Broken bytes become U+FFFD, one for each maximal subpart, as Python's errors="replace" and Rust's from_utf8_lossy do.
std::string replace_invalid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t code);

}  // namespace ingot
