#pragma once

#include "text/jinja/run.h"

// Shared by the filters' files; one table of filters a file.
namespace ingot::jinja {

struct FilterEntry {
  std::string_view name;
  Filter function;
};
struct FilterTable {
  const FilterEntry* begin;
  const FilterEntry* end;
};

FilterTable text_filters();
FilterTable sequence_filters();

}  // namespace ingot::jinja
