#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

// Python's ways to format values into text.
namespace ingot::jinja {

Value format_percent(const Value& format, const Value& args);     // format % args
Value format_braces(const Value& format, const Args& args);       // format.format(...)
std::string format_value(const Value& v, std::string_view spec);  // format(v, spec)

// Pads to `width` characters; align is '<', '>', '^' or, for numbers, '=' (between sign and digits).
std::string pad(std::string_view text, int64_t width, char32_t fill, char align);

}  // namespace ingot::jinja
