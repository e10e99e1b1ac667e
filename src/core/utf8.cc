#include "core/utf8.h"

#include <cstring>

namespace ingot {

Utf8Step inspect_utf8(std::string_view text) {
  const auto* b = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char lead = b[0];
  if (lead < 0x80) return {Utf8Status::valid, 1};
  uint32_t length;
  unsigned char low = 0x80, high = 0xBF;  // limits of the second byte: no overlong forms, surrogates or code > 10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::invalid, 1};
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::incomplete, i};
    if (b[i] < low || b[i] > high) return {Utf8Status::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::valid, length};
}

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size()) {
      uint64_t word;
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080u) == 0) {
        i += 8;
        continue;
      }
    }
    const Utf8Step step = inspect_utf8(text.substr(i));
    if (step.status != Utf8Status::valid) return false;
    i += step.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = inspect_utf8(text.substr(i));
    if (step.status == Utf8Status::valid) {
      out.append(text.substr(i, step.length));
    } else {
      out.append(kReplacementUtf8);
    }
    i += step.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | code >> 6));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | code >> 12));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  } else {
    out.push_back(static_cast<char>(0xF0 | code >> 18));
    out.push_back(static_cast<char>(0x80 | (code >> 12 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code >> 6 & 0x3F)));
    out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
  }
}

}  // namespace ingot
