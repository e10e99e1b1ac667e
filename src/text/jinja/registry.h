#pragma once

#include <string_view>

#include "text/jinja/value.h"

// The filters, tests and functions that templates can use.
namespace ingot::jinja {

struct FilterEntry {
  std::string_view name;
  Value (*function)(Interpreter& interpreter, Args& args);  // args.positional[0] is what is filtered
};

struct TestEntry {
  std::string_view name;
  bool (*function)(Interpreter& interpreter, Args& args);  // args.positional[0] is what is tested
};

const FilterEntry* find_filter(std::string_view name);  // null when there is none
const TestEntry* find_test(std::string_view name);
// Filters that jinja2 has and this engine has not.
bool is_unsupported_filter(std::string_view name);
// range(), namespace(), raise_exception() ...; nothing when there is none.
std::optional<Value> find_global(std::string_view name);

}  // namespace ingot::jinja
