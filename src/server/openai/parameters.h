#pragma once

#include "server/openai/body.h"

namespace ingot::server::openai {

// Judges every parameter that nobody took. What cannot change the answer is accepted when it has the right type; what
// could (tools, ...) is accepted only with the value that means "off"; a name that is not known is refused,
// because nobody can tell what it would have changed. Throws ApiError naming the parameter.
void check_other_parameters(const Fields& fields);

}  // namespace ingot::server::openai
