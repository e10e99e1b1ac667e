#pragma once

#include <span>
#include <string_view>

#include "server/openai/body.h"

namespace ingot::server::openai {

// What a value must be for the parameter to change nothing.
enum class Off {
  always,     // the parameter never changes the answer
  empty,      // [], {} or ""
  no_choice,  // "none" or "auto", as there are no tools to choose from
  text_only,  // ["text"]
  is_true,
  is_false,
  medium,  // the default level of a scale
  never,   // null is all that is accepted
};

struct ParameterRule {
  std::string_view name;
  Off off;
  std::string_view hint = "is not supported by this server";
};

// Judges every parameter that nobody took. What cannot change the answer is accepted when it has the right type; what
// could (tools, ...) is accepted only with the value that means "off"; a name that is not known is refused,
// because nobody can tell what it would have changed. Throws ApiError naming the parameter.
void check_other_parameters(const Fields& fields);  // of OpenAI's older endpoints
void check_other_parameters(const Fields& fields, std::span<const ParameterRule> rules);

}  // namespace ingot::server::openai
