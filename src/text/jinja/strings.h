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
std::vector<char32_t> decode(std::string_view text);
std::string encode(const std::vector<char32_t>& chars);

bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_alnum(char32_t c);
bool is_digit(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);  // as str.title(); the filter of this name cuts words elsewhere
std::string to_capitalized(std::string_view text);

// Whitespace trimmed as by str.strip(), str.lstrip() and str.rstrip() without an argument.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }
// The same with an argument: trims any of the characters in `chars`.
std::string strip_chars(std::string_view text, std::string_view chars, bool left, bool right);

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
// As str.split() and str.rsplit(); `sep` null: at runs of whitespace. maxsplit < 0: no limit.
std::vector<std::string> split_text(std::string_view text, const std::string* sep, int64_t maxsplit, bool from_right);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);

// Like std::string_view's find() and rfind(), but in linear time whatever the texts are.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view needle);

// `text` filled up to `width` characters: to the right of it ('<'), to the left ('>') or around it ('^').
std::string pad(std::string text, int64_t width, char32_t fill, char align);

}  // namespace ingot::jinja
