#pragma once

#include <string_view>

#include "text/jinja/objects.h"

namespace ingot::jinja {

// Null when Python's str has no such method, or it is not supported (then `unsupported` is set).
const Method* string_method(std::string_view name, bool& unsupported);

// Like std::string_view's find() and rfind(), but in linear time whatever the texts are.
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view needle);

// Splitting as by str.split() and str.rsplit(); `sep` null: at runs of whitespace. maxsplit < 0: no limit.
std::vector<std::string> split_text(std::string_view text, const std::string* sep, int64_t maxsplit, bool from_right);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);
// str.strip() and relatives with an argument: trims any of the characters in `chars`.
std::string strip_chars(std::string_view text, std::string_view chars, bool left, bool right);

}  // namespace ingot::jinja
