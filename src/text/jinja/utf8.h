#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Python's view of text, a sequence of code points, over UTF-8. A byte that is not part of valid UTF-8 counts as one
// character of its own (code point kBadByte + byte) and is copied through unchanged.
namespace ingot::jinja {

inline constexpr char32_t kBadByte = 0x110000;

// Decodes the character at `pos` (which must be < text.size()) and moves `pos` behind it.
char32_t next_char(std::string_view text, size_t& pos);
void append_char(std::string& out, char32_t c);
size_t count_chars(std::string_view text);

// Byte offsets of all characters, and text.size() at the end.
std::vector<uint32_t> char_offsets(std::string_view text);
std::vector<char32_t> decode(std::string_view text);
std::string encode(const std::vector<char32_t>& chars);

// Python's str methods of these names.
bool is_space(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_printable(char32_t c);
bool is_word(char32_t c);  // \w of a regular expression

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_fold(std::string_view text);
std::string to_title(std::string_view text);
std::string to_capitalized(std::string_view text);
std::string to_swapped(std::string_view text);

// Whitespace trimmed as by str.strip(), str.lstrip() and str.rstrip() without an argument.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace ingot::jinja
