#pragma once

#include <string>
#include <vector>

#include "ingot/llm.h"

namespace ingot::cli {

class Options;

// The flags that say what a text must be: at most one, and --strict.
struct StructuredArgs {
  std::string schema, regex, gbnf, structural_tag;
  std::vector<std::string> choices;
  bool strict = false;
};

// `group` says how many of them may be given; `command` gets --strict.
void add_structured_options(Options command, Options group, StructuredArgs& args);

// Reads the files that the flags name; errors call it as the flag is called.
StructuredOutput read_structured(const StructuredArgs& args);

}  // namespace ingot::cli
