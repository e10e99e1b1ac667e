#pragma once

#include <string_view>

#include "grammar/grammar.h"
#include "grammar/program.h"

namespace ingot::grammar {

// The rule of the JSON texts that a schema (draft 2020-12) accepts. Throws Error(bad_call) whose param is the place of
// what is not supported, malformed or satisfied by nothing; `base` is put before it.
RuleId compile_schema(Program& program, std::string_view schema, const Options& options, const std::string& base = "#");

}  // namespace ingot::grammar
