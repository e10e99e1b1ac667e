#include "text/word_scanners.h"

namespace ingot {
namespace {

// The character at p with its class bits; zero bits and length 0 at the end.
struct Peek {
  char32_t code = 0;
  uint32_t length = 0;
  uint8_t bits = 0;
};

inline Peek peek(const CharClasses& classes, const char* p, const char* end) {
  if (p == end) return {};
  const Utf8Char c = decode_valid_utf8(p);
  return {c.code, c.length, classes[c.code]};
}

// Skips characters that have one of the bits `any`.
template <uint8_t any>
const char* skip_any(const CharClasses& classes, const char* p, const char* end) {
  while (p != end) {
    const Utf8Char c = decode_valid_utf8(p);
    if ((classes[c.code] & any) == 0) break;
    p += c.length;
  }
  return p;
}

// Skips characters that have none of the bits `none`.
template <uint8_t none>
const char* skip_none(const CharClasses& classes, const char* p, const char* end) {
  while (p != end) {
    const Utf8Char c = decode_valid_utf8(p);
    if ((classes[c.code] & none) != 0) break;
    p += c.length;
  }
  return p;
}

constexpr uint8_t kNotOther = kLetter | kNumber | kSpace;

inline bool is_newline(char32_t c) { return c == '\r' || c == '\n'; }

// 's 't 're 've 'm 'll 'd after an apostrophe at p: the end of the contraction, or nullptr.
const char* match_contraction(const char* p, const char* end, bool any_case) {
  auto letter = [&](const char* q) -> char {
    if (q >= end) return 0;
    const char c = *q;
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  switch (letter(p + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return p + 2;
    case 'r':
    case 'v': return letter(p + 2) == 'e' ? p + 3 : nullptr;
    case 'l': return letter(p + 2) == 'l' ? p + 3 : nullptr;
    // U+017F, the long s, is an s in another case.
    case '\xC5': return any_case && end - p >= 3 && p[2] == '\xBF' ? p + 3 : nullptr;
    default: return nullptr;
  }
}

// \s+(?!\S)|\s+ : white space up to the last character before a word, which keeps one of them. With `lines`
// \s*[\r\n]+|\s+(?!\S)|\s+ : the same, but white space that holds a line break ends after its last one.
template <bool lines>
const char* match_space(const CharClasses& classes, const char* begin, const char* end) {
  const char* last = begin;
  const char* after_newline = nullptr;
  const char* p = begin;
  while (p != end) {
    const Utf8Char c = decode_valid_utf8(p);
    if ((classes[c.code] & kSpace) == 0) break;
    last = p;
    p += c.length;
    if (lines && is_newline(c.code)) after_newline = p;
  }
  if (after_newline) return after_newline;
  return p == end || last == begin ? p : last;
}

template <int max_digits>
const char* scan_llama_like(const CharClasses& classes, const char* begin, const char* end) {
  const Peek first = peek(classes, begin, end);
  if (first.code == '\'') {
    if (const char* stop = match_contraction(begin, end, true)) return stop;
  }
  const char* next = begin + first.length;
  if (first.bits & kLetter) return skip_any<kLetter>(classes, next, end);
  if (first.bits & kNumber) {
    const char* p = next;
    for (int i = 1; i < max_digits; ++i) {
      const Peek digit = peek(classes, p, end);
      if ((digit.bits & kNumber) == 0) break;
      p += digit.length;
    }
    return p;
  }
  const Peek second = peek(classes, next, end);
  if (!is_newline(first.code) && (second.bits & kLetter)) return skip_any<kLetter>(classes, next + second.length, end);
  const bool space_then_other = first.code == ' ' && second.length && !(second.bits & kNotOther);
  if (space_then_other || !(first.bits & kSpace)) {
    const char* p = skip_none<kNotOther>(classes, next, end);
    while (p != end && is_newline(static_cast<unsigned char>(*p))) ++p;
    return p;
  }
  return match_space<true>(classes, begin, end);
}

// Which of the two letter sets of the Tekken pattern a character is in. "Either" is \p{Lm}\p{Lo}\p{M}.
inline bool is_upper_or_either(uint8_t bits) { return (bits & (kLetter | kMark)) && !(bits & kLower); }
inline bool is_lower_or_either(uint8_t bits) { return (bits & (kLetter | kMark)) && !(bits & kUpper); }

// [upper or either]*[lower or either]+ at p; nullptr when it does not match. `upper_end` receives the end of the first
// set's longest run.
const char* match_tekken_word(const CharClasses& classes, const char* p, const char* end, const char** upper_end) {
  const char* after_either = nullptr;
  while (p != end) {
    const Utf8Char c = decode_valid_utf8(p);
    const uint8_t bits = classes[c.code];
    if (!is_upper_or_either(bits)) break;
    p += c.length;
    if (is_lower_or_either(bits)) after_either = p;
  }
  *upper_end = p;
  const char* lower_end = p;
  while (lower_end != end) {
    const Utf8Char c = decode_valid_utf8(lower_end);
    if (!is_lower_or_either(classes[c.code])) break;
    lower_end += c.length;
  }
  // Without a lower-case letter behind it, the first set gives back down to its last character that is in both.
  return lower_end != p ? lower_end : after_either;
}

}  // namespace

const char* scan_gpt2(const CharClasses& classes, const char* begin, const char* end) {
  const Peek first = peek(classes, begin, end);
  if (first.code == '\'') {
    if (const char* stop = match_contraction(begin, end, false)) return stop;
  }
  const char* p = begin + first.length;
  Peek word = first;
  if (first.code == ' ') {
    word = peek(classes, p, end);
    if (word.length == 0 || (word.bits & kSpace)) return match_space<false>(classes, begin, end);
    p += word.length;
  }
  if (word.bits & kLetter) return skip_any<kLetter>(classes, p, end);
  if (word.bits & kNumber) return skip_any<kNumber>(classes, p, end);
  if (word.bits & kSpace) return match_space<false>(classes, begin, end);
  return skip_none<kNotOther>(classes, p, end);
}

const char* scan_llama3(const CharClasses& classes, const char* begin, const char* end) {
  return scan_llama_like<3>(classes, begin, end);
}

const char* scan_qwen2(const CharClasses& classes, const char* begin, const char* end) {
  return scan_llama_like<1>(classes, begin, end);
}

const char* scan_tekken(const CharClasses& classes, const char* begin, const char* end) {
  const Peek first = peek(classes, begin, end);
  const char* next = begin + first.length;
  const bool can_lead = !(first.bits & (kLetter | kNumber)) && !is_newline(first.code);
  const char* led_upper_end = nullptr;
  const char* upper_end = nullptr;
  if (can_lead) {
    if (const char* stop = match_tekken_word(classes, next, end, &led_upper_end)) return stop;
  }
  if (first.bits & (kLetter | kMark)) {
    if (const char* stop = match_tekken_word(classes, begin, end, &upper_end)) return stop;
  }
  if (can_lead && led_upper_end != next) return led_upper_end;
  if (upper_end && upper_end != begin) return upper_end;
  if (first.bits & kNumber) return next;
  const Peek second = peek(classes, next, end);
  const bool space_then_other = first.code == ' ' && second.length && !(second.bits & kNotOther);
  if (space_then_other || !(first.bits & kSpace)) {
    const char* p = skip_none<kNotOther>(classes, next, end);
    while (p != end && (is_newline(static_cast<unsigned char>(*p)) || *p == '/')) ++p;
    return p;
  }
  return match_space<true>(classes, begin, end);
}

WordScanner find_scanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return scan_gpt2;
  if (pattern == kLlama3Pattern) return scan_llama3;
  if (pattern == kQwen2Pattern) return scan_qwen2;
  if (pattern == kTekkenPattern) return scan_tekken;
  return nullptr;
}

}  // namespace ingot
