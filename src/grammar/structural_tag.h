#pragma once

#include <string_view>

#include "grammar/grammar.h"
#include "grammar/program.h"

namespace ingot::grammar {

// Free text in which each trigger begins one of the structures: its begin, a JSON value of its schema, its end.
RuleId compile_structural_tag(Program& program, std::string_view tag, const Options& options);

}  // namespace ingot::grammar
