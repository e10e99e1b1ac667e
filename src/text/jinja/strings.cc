#include "text/jinja/strings.h"

#include <string.h>
#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "core/utf8.h"
#include "text/jinja/limits.h"
#include "text/jinja/raise.h"

namespace ingot::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return c < kBadByte ? utf8proc_category(static_cast<utf8proc_int32_t>(c)) : UTF8PROC_CATEGORY_CS;
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return c < kBadByte ? static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))) : c;
}

// utf8proc maps one character to one. Those whose capital is several (like the sharp s) are the small ones whose full
// case folding is several, and the folding's letters in upper case are the capital.
std::vector<char32_t> folded_to_many(char32_t c) {
  utf8proc_int32_t folded[4];
  int boundary = 0;
  if (c < 0x80 || c >= kBadByte || is_upper(c)) return {};
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 4, UTF8PROC_CASEFOLD, &boundary);
  return n > 1 && n <= 4 ? std::vector<char32_t>(folded, folded + n) : std::vector<char32_t>();
}

void append_upper(std::string& out, char32_t c) {
  const std::vector<char32_t> many = folded_to_many(c);
  for (char32_t part : many) append_char(out, simple(utf8proc_toupper, part));
  if (many.empty()) append_char(out, simple(utf8proc_toupper, c));
}

void append_title(std::string& out, char32_t c) {
  const char32_t one = simple(utf8proc_totitle, c);
  const std::vector<char32_t> many = folded_to_many(c);
  if (many.empty() || is_title(one)) return append_char(out, one);
  bool done = false;  // one letter is capital, an iota behind it is written below
  for (char32_t part : many) {
    const char32_t title = simple(utf8proc_totitle, part);
    append_char(out, !done ? title : part == 0x3b9 ? 0x345 : part);
    done = done || title != part;
  }
}

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2018 || c == 0x2019;
  }
}

// Unicode's final sigma rule: at the end of a word capital sigma becomes the other small sigma.
bool is_final_sigma(const std::vector<char32_t>& chars, size_t i) {
  size_t before = i;
  while (before > 0 && is_case_ignorable(chars[before - 1])) --before;
  if (before == 0 || !is_cased(chars[before - 1])) return false;
  size_t after = i + 1;
  while (after < chars.size() && is_case_ignorable(chars[after])) ++after;
  return after == chars.size() || !is_cased(chars[after]);
}

void append_lower(std::string& out, const std::vector<char32_t>& chars, size_t i) {
  const char32_t c = chars[i];
  if (c == 0x130) {
    out += "i\u0307";
  } else if (c == 0x3a3) {
    append_char(out, is_final_sigma(chars, i) ? 0x3c2 : 0x3c3);
  } else {
    append_char(out, simple(utf8proc_tolower, c));
  }
}

// What is over the limit of splits stays together, with the whitespace at its far end.
std::vector<std::string> split_whitespace(std::string_view text, int64_t maxsplit, bool from_right) {
  std::vector<std::string_view> words;
  for (std::string_view rest = strip_left(text); !rest.empty(); rest = strip_left(rest)) {
    size_t end = 0;
    for (size_t next = 0; end < rest.size(); end = next)
      if (is_space(next_char(rest, next))) break;
    words.push_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  if (maxsplit >= 0 && static_cast<size_t>(maxsplit) < words.size()) {
    const size_t split = static_cast<size_t>(maxsplit);
    if (from_right) {
      const std::string_view last = words[words.size() - split - 1];
      words.erase(words.begin(), words.end() - maxsplit - 1);
      words[0] = text.substr(0, static_cast<size_t>(last.data() + last.size() - text.data()));
    } else {
      words.resize(split + 1);
      words[split] = text.substr(static_cast<size_t>(words[split].data() - text.data()));
    }
  }
  return {words.begin(), words.end()};
}

}  // namespace

char32_t next_char(std::string_view text, size_t& pos) {
  const Utf8Step step = inspect_utf8(text.substr(pos));
  if (step.status == Utf8Status::valid)
    return decode_valid_utf8(text.data() + std::exchange(pos, pos + step.length)).code;
  return kBadByte + static_cast<unsigned char>(text[pos++]);
}

void append_char(std::string& out, char32_t c) {
  if (c >= kBadByte) {
    out.push_back(static_cast<char>(c - kBadByte));
  } else {
    append_utf8(out, c);
  }
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) {
    // Eight ASCII characters at a time.
    for (uint64_t word; pos + sizeof word <= text.size(); pos += sizeof word, count += sizeof word) {
      memcpy(&word, text.data() + pos, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
    }
    if (pos == text.size()) break;
    next_char(text, pos);
  }
  return count;
}

std::vector<char32_t> decode(std::string_view text) {
  std::vector<char32_t> chars;
  chars.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) chars.push_back(next_char(text, pos));
  return chars;
}

std::string encode(const std::vector<char32_t>& chars) {
  std::string out;
  out.reserve(chars.size());
  for (char32_t c : chars) append_char(out, c);
  return out;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// By general category; the enumeration runs CN, then letters from LU to LO, marks, numbers from ND to NO, punctuation,
// symbols, and from ZS on what is not printed.
bool is_alpha(char32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_printable(char32_t c) {
  return c == ' ' || (category(c) > UTF8PROC_CATEGORY_CN && category(c) < UTF8PROC_CATEGORY_ZS);
}
bool is_alnum(char32_t c) {
  return is_alpha(c) || (category(c) >= UTF8PROC_CATEGORY_ND && category(c) <= UTF8PROC_CATEGORY_NO);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) append_upper(out, next_char(text, pos));
  return out;
}

std::string to_lower(std::string_view text) {
  const std::vector<char32_t> chars = decode(text);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < chars.size(); ++i) append_lower(out, chars, i);
  return out;
}

std::string to_title(std::string_view text) {
  const std::vector<char32_t> chars = decode(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < chars.size(); in_word = is_cased(chars[i++])) {
    if (in_word) {
      append_lower(out, chars, i);
    } else {
      append_title(out, chars[i]);
    }
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  const std::vector<char32_t> chars = decode(text);
  std::string out;
  if (!chars.empty()) append_title(out, chars[0]);
  for (size_t i = 1; i < chars.size(); ++i) append_lower(out, chars, i);
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t pos = 0;
  for (size_t next = 0; pos < text.size(); pos = next)
    if (!is_space(next_char(text, next))) break;
  return text.substr(pos);
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 3 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    size_t pos = start;
    if (!is_space(next_char(text, pos)) || pos != text.size()) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

std::string strip_chars(std::string_view text, std::string_view chars, bool left, bool right) {
  std::vector<char32_t> set = decode(chars);
  std::sort(set.begin(), set.end());
  const auto in_set = [&set](char32_t c) { return std::binary_search(set.begin(), set.end(), c); };
  const std::vector<char32_t> all = decode(text);
  auto begin = all.begin();
  auto end = all.end();
  while (left && begin < end && in_set(*begin)) ++begin;
  while (right && end > begin && in_set(end[-1])) --end;
  return encode({begin, end});
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const char32_t c = next_char(text, pos);
    if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
    if (c == '\r' && pos < text.size() && text[pos] == '\n') ++pos;
    lines.push_back(text.substr(start, (keep_ends ? pos : at) - start));
    start = pos;
  }
  if (start < text.size()) lines.push_back(text.substr(start));
  return lines;
}

std::vector<std::string> split_text(std::string_view text, const std::string* sep, int64_t maxsplit, bool from_right) {
  if (sep == nullptr) return split_whitespace(text, maxsplit, from_right);
  if (sep->empty()) raise("empty separator");
  std::vector<std::string> parts;
  if (from_right) {  // is splitting the text backwards
    const std::string reversed_sep(sep->rbegin(), sep->rend());
    parts = split_text(std::string(text.rbegin(), text.rend()), &reversed_sep, maxsplit, false);
    for (std::string& part : parts) std::reverse(part.begin(), part.end());
    std::reverse(parts.begin(), parts.end());
    return parts;
  }
  for (size_t at; maxsplit-- != 0 && (at = find_text(text, *sep)) != text.npos; text = text.substr(at + sep->size()))
    parts.emplace_back(text.substr(0, at));
  parts.emplace_back(text);
  return parts;
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t pos = 0;
  const auto check = [&] {
    if (out.size() > kMaxValueWeight) raise_limit("replace() made over {} MiB of text", kMaxValueWeight >> 20);
  };
  if (from.empty()) {  // goes in before every character and at the end
    for (; count != 0; --count) {
      out += to;
      check();
      if (pos >= text.size()) break;
      append_char(out, next_char(text, pos));
    }
    return out.append(text.substr(pos));
  }
  for (size_t at; count != 0 && (at = find_text(text, from, pos)) != text.npos; pos = at + from.size(), --count) {
    out += text.substr(pos, at - pos);
    out += to;
    check();
  }
  return out.append(text.substr(pos));
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return text.npos;
  if (needle.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? text.npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  const std::string reversed_text(text.rbegin(), text.rend());
  const size_t at = find_text(reversed_text, std::string(needle.rbegin(), needle.rend()));
  return at == text.npos ? at : text.size() - at - needle.size();
}

std::string pad(std::string text, int64_t width, char32_t fill, char align) {
  if (width > static_cast<int64_t>(kMaxValueWeight)) raise_limit("a width of {} is not supported", width);
  const int64_t missing = std::max<int64_t>(0, width - static_cast<int64_t>(count_chars(text)));
  const int64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (int64_t i = 0; i < before; ++i) append_char(out, fill);
  out += text;
  for (int64_t i = before; i < missing; ++i) append_char(out, fill);
  return out;
}

}  // namespace ingot::jinja
