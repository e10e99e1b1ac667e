#pragma once

#include <string>
#include <string_view>

#include "grammar/char_set.h"

namespace ingot::grammar {

// The texts that a regular expression of ECMA-262 (with its flag u) matches, as an expression over bytes: anywhere in
// them, as JSON Schema's `pattern` means it, or as a whole. Lookaheads are taken wherever they are not repeated.
// Throws Error(bad_call) of the parameter `place` for a mistake and for what no automaton can do (backreferences, word
// boundaries, lookbehind).
enum class RegexMatch { anywhere, whole };
ExprId parse_regex(CharEncoder& encoder, std::string_view pattern, RegexMatch match, const std::string& place);

}  // namespace ingot::grammar
