#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace ingot::jinja {

// Arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  std::optional<Value> take_keyword(std::string_view name);
};

// Sorts the arguments of a call into named parameters, as Python does.
class Params {
 public:
  Params(std::string_view function, const Args& args, std::initializer_list<std::string_view> names, size_t required);

  bool given(size_t i) const { return values_[i].has_value() && !values_[i]->is_none(); }
  const Value& at(size_t i) const { return *values_[i]; }
  Value get(size_t i, Value absent) const { return values_[i] ? *values_[i] : std::move(absent); }
  bool truthy(size_t i) const { return values_[i] && values_[i]->truthy(); }
  int64_t integer(size_t i, int64_t absent) const;  // raises when given and not an int
  const std::string& string(size_t i) const;        // raises when not a string

 private:
  std::string_view function_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace ingot::jinja
