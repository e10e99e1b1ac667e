#include "text/jinja/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace ingot::jinja {
namespace {

struct SpecialCase {
  char32_t c;
  const char32_t* upper;
  const char32_t* title;
};

// Ordered by character.
constexpr SpecialCase kSpecialCases[] = {
#include "text/jinja/case_table.inc"
};

const SpecialCase* special_case(char32_t c) {
  const auto* end = std::end(kSpecialCases);
  const auto* it =
      std::lower_bound(std::begin(kSpecialCases), end, c, [](const SpecialCase& s, char32_t x) { return s.c < x; });
  return it != end && it->c == c ? it : nullptr;
}

void append_all(std::string& out, const char32_t* chars) {
  for (; *chars != 0; ++chars) append_char(out, *chars);
}

struct Span {
  char32_t first, last;
};

template <size_t N>
bool in_spans(char32_t c, const Span (&spans)[N]) {
  return std::any_of(std::begin(spans), std::end(spans), [c](const Span& s) { return c >= s.first && c <= s.last; });
}

utf8proc_category_t category(char32_t c) {
  return c < kBadByte ? utf8proc_category(static_cast<utf8proc_int32_t>(c)) : UTF8PROC_CATEGORY_CS;
}

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return c < kBadByte ? static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))) : c;
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
  } else if (const SpecialCase* s = special_case(c)) {
    append_all(out, s->upper);
  } else {
    append_char(out, simple(utf8proc_toupper, c));
  }
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80) {
    append_upper(out, c);
  } else if (const SpecialCase* s = special_case(c)) {
    append_all(out, s->title);
  } else {
    append_char(out, simple(utf8proc_totitle, c));
  }
}

bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

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
  if (c < 0x80) {
    out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    out += "i\u0307";
  } else if (c == 0x3a3) {
    append_char(out, is_final_sigma(chars, i) ? 0x3c2 : 0x3c3);
  } else {
    append_char(out, simple(utf8proc_tolower, c));
  }
}

}  // namespace

char32_t next_char(std::string_view text, size_t& pos) {
  const unsigned char lead = static_cast<unsigned char>(text[pos]);
  if (lead < 0x80) {
    ++pos;
    return lead;
  }
  const int length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead >= 0xc2 && lead <= 0xf4 && pos + length <= text.size()) {
    char32_t c = lead & (0xff >> (length + 1));
    bool good = true;
    for (int i = 1; i < length; ++i) {
      const unsigned char byte = static_cast<unsigned char>(text[pos + i]);
      good = good && (byte & 0xc0) == 0x80;
      c = (c << 6) | (byte & 0x3f);
    }
    const char32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
    if (good && c >= least && c <= 0x10ffff && (c < 0xd800 || c > 0xdfff)) {
      pos += length;
      return c;
    }
  }
  ++pos;
  return kBadByte + lead;
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c >= kBadByte) {
    out.push_back(static_cast<char>(c - kBadByte));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  } else {
    out.push_back(static_cast<char>(0xf0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 0x3f)));
    out.push_back(static_cast<char>(0x80 | (c & 0x3f)));
  }
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (size_t pos = 0; pos < text.size(); ++count) {
    // Eight ASCII characters at a time.
    for (uint64_t word; pos + sizeof word <= text.size(); pos += sizeof word, count += sizeof word) {
      std::memcpy(&word, text.data() + pos, sizeof word);
      if ((word & 0x8080808080808080u) != 0) break;
    }
    if (pos == text.size()) break;
    next_char(text, pos);
  }
  return count;
}

std::vector<uint32_t> char_offsets(std::string_view text) {
  std::vector<uint32_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t pos = 0; pos < text.size(); next_char(text, pos)) offsets.push_back(static_cast<uint32_t>(pos));
  offsets.push_back(static_cast<uint32_t>(text.size()));
  return offsets;
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

bool is_alpha(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  static constexpr Span kDigits[] = {{0xb2, 0xb3},     {0xb9, 0xb9},     {0x1369, 0x1371}, {0x19da, 0x19da},
                                     {0x2070, 0x2070}, {0x2074, 0x2079}, {0x2080, 0x2089}, {0x2460, 0x2468},
                                     {0x2474, 0x247c}, {0x2488, 0x2490}, {0x24ea, 0x24ea}, {0x24f5, 0x24fd},
                                     {0x24ff, 0x24ff}, {0x2776, 0x277e}, {0x2780, 0x2788}, {0x278a, 0x2792}};
  return is_decimal(c) || in_spans(c, kDigits);
}

bool is_numeric(char32_t c) {
  static constexpr char32_t kHan[] =
      U"一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卅卌叁参參叄四壱壹百肆萬貮貳贰阡陆陌陸零〇";
  const auto k = category(c);
  return is_digit(c) || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         std::find(std::begin(kHan), std::end(kHan) - 1, c) != std::end(kHan) - 1;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  static constexpr Span kOther[] = {{0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},   {0x2c0, 0x2c1},
                                    {0x2e0, 0x2e4},   {0x345, 0x345},   {0x37a, 0x37a},   {0x1d2c, 0x1d6a},
                                    {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf}, {0x2071, 0x2071}, {0x207f, 0x207f},
                                    {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9}};
  return category(c) == UTF8PROC_CATEGORY_LL || in_spans(c, kOther);
}

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  static constexpr Span kOther[] = {
      {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
  return category(c) == UTF8PROC_CATEGORY_LU || in_spans(c, kOther);
}

bool is_title(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_word(char32_t c) {
  if (c < 0x80) return c == '_' || is_alpha(c) || is_decimal(c);
  return is_alpha(c) || is_numeric(c);
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

std::string to_fold(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = next_char(text, pos);
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const utf8proc_ssize_t n = c < kBadByte ? utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded, 8,
                                                                      UTF8PROC_CASEFOLD, &boundary)
                                            : 0;
    if (n < 1 || n > 8) append_char(out, c);
    for (utf8proc_ssize_t i = 0; i < n && n <= 8; ++i) append_char(out, static_cast<char32_t>(folded[i]));
  }
  return out;
}

std::string to_title(std::string_view text) {
  const std::vector<char32_t> chars = decode(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (in_word) {
      append_lower(out, chars, i);
    } else {
      append_title(out, chars[i]);
    }
    in_word = is_cased(chars[i]);
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

std::string to_swapped(std::string_view text) {
  const std::vector<char32_t> chars = decode(text);
  std::string out;
  for (size_t i = 0; i < chars.size(); ++i) {
    if (is_upper(chars[i])) {
      append_lower(out, chars, i);
    } else if (is_lower(chars[i])) {
      append_upper(out, chars[i]);
    } else {
      append_char(out, chars[i]);
    }
  }
  return out;
}

std::string_view strip_left(std::string_view text) {
  size_t pos = 0;
  while (pos < text.size()) {
    size_t next = pos;
    if (!is_space(next_char(text, next))) break;
    pos = next;
  }
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

}  // namespace ingot::jinja
