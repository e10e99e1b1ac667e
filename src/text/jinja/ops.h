#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

// Python's operators.
namespace ingot::jinja {

enum class BinaryOp { add, sub, mul, div, floor_div, mod, pow };

Value apply(BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& v);
Value plus(const Value& v);
bool contains(const Value& container, const Value& item);

// container[key] of Python; nothing where Python raises a TypeError or LookupError.
std::optional<Value> subscript(const Value& container, const Value& key);
// container[start:stop:step]; an absent bound is None.
Value slice(const Value& container, const Value& start, const Value& stop, const Value& step);

// jinja2's `a.b` and `a[b]`: attribute then item, item then attribute, else undefined.
Value get_attribute(const Value& v, std::string_view name);
Value get_item(const Value& v, const Value& key);
// A Python attribute only, as of getattr(); nothing when there is none.
std::optional<Value> python_attribute(const Value& v, std::string_view name);

// Start, stop and step of a slice over `length` items, clamped as Python does it.
struct SliceRange {
  int64_t start, stop, step;
};
SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length);
std::string substring(const Value& string, int64_t start, int64_t count);  // in characters

}  // namespace ingot::jinja
