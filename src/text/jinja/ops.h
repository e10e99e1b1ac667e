#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

// Python's operators.
namespace ingot::jinja {

class Run;

enum class BinaryOp { add, sub, mul, div, floor_div, mod };
enum class Comparison { eq, ne, lt, le, gt, ge, in, not_in };

Value apply(BinaryOp op, const Value& a, const Value& b);
Value negate(const Value& v);
bool compare(Run& run, Comparison comparison, const Value& a, const Value& b);

// container[start:stop:step]; an absent bound is None.
Value slice(const Value& container, const Value& start, const Value& stop, const Value& step);
// Start, stop and step of a slice over `length` items, clamped as Python does it.
struct SliceRange {
  int64_t start, stop, step;
};
SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length);
std::string substring(const Value& string, int64_t start, int64_t count);  // in characters

// jinja2's `a.b` and `a[b]`: attribute then item, item then attribute, else undefined.
Value get_attribute(const Value& v, std::string_view name);
Value get_item(const Value& v, const Value& key);
// A Python attribute only, as of getattr(); nothing when there is none.
std::optional<Value> python_attribute(const Value& v, std::string_view name);

}  // namespace ingot::jinja
