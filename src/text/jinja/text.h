#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

// How Python writes values.
namespace ingot::jinja {

std::string quote(std::string_view text);  // repr() of a string
std::string real_text(double d);           // repr() of a float
std::string str(const Value& v);
std::string repr(const Value& v);
std::string escape_html(std::string_view text);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one item a line, indented by `indent`
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string dump_json(const Value& v, const JsonStyle& style);

// format % args, and text.format(args).
Value format_percent(const std::string& format, const Value& args);
Value format_braces(const std::string& format, const Args& args);

}  // namespace ingot::jinja
