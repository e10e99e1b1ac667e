#pragma once

#include <string_view>

#include "grammar/program.h"

namespace ingot::grammar {

// A grammar in GBNF, as llama.cpp writes it: `root ::= "a" [b-z]* other{2,3}`. `<text>` is the special token of that
// text. Returns the rule of `root`. Throws Error(bad_call) with the line at fault.
RuleId compile_gbnf(Program& program, std::string_view source);

}  // namespace ingot::grammar
