#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot {

// GPT-2's alphabet: each byte is written as a printable character, so that a vocabulary of byte strings is readable
// text. Bytes that are printable in Latin-1 stand for themselves, the other 68 for U+0100 onwards.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  char32_t to_char(uint8_t byte) const { return to_char_[byte]; }
  int to_byte(char32_t code) const { return code < to_byte_.size() ? to_byte_[code] : -1; }  // -1: not in the alphabet

  // The bytes a token text stands for; false when it holds a character outside the alphabet (`out` is then
  // unspecified).
  bool decode(std::string_view token_text, std::string& out) const;
  std::string encode(std::string_view bytes) const;

 private:
  ByteAlphabet();

  std::array<char32_t, 256> to_char_;
  std::array<int16_t, 324> to_byte_;
};

}  // namespace ingot
