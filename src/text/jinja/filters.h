#pragma once

#include <functional>
#include <optional>

#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/registry.h"

// Shared by the filters' files; one table of filters a file.
namespace ingot::jinja {

template <typename T>
struct Table {
  const T* begin;
  const T* end;
};

Table<FilterEntry> text_filters();
Table<FilterEntry> number_filters();
Table<FilterEntry> sequence_filters();
Table<FilterEntry> selection_filters();

// Follows "a.b.0" from an item, as the `attribute` argument of filters does; no attribute gives the item itself.
// `absent` replaces what is undefined.
Value follow_attribute(Interpreter& interpreter, const Value& item, const Value& attribute,
                       const Value* absent = nullptr);
Value ignore_case(Interpreter& interpreter, const Value& v);  // strings in lower case, others as they are

}  // namespace ingot::jinja
