#include "text/byte_alphabet.h"

#include "text/unicode.h"

namespace ingot {

const ByteAlphabet& ByteAlphabet::get() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

ByteAlphabet::ByteAlphabet() {
  to_byte_.fill(-1);
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const char32_t code = printable ? static_cast<char32_t>(b) : next++;
    to_char_[b] = code;
    to_byte_[code] = static_cast<int16_t>(b);
  }
}

bool ByteAlphabet::decode(std::string_view token_text, std::string& out) const {
  out.clear();
  for (size_t i = 0; i < token_text.size();) {
    const Utf8Char c = decode_valid_utf8(token_text.data() + i);
    i += c.length;
    const int byte = to_byte(c.code);
    if (byte < 0) return false;
    out.push_back(static_cast<char>(byte));
  }
  return true;
}

std::string ByteAlphabet::encode(std::string_view bytes) const {
  std::string out;
  for (char b : bytes) append_utf8(out, to_char(static_cast<uint8_t>(b)));
  return out;
}

}  // namespace ingot
