#pragma once

#include <span>

#include "server/openai/parameters.h"

namespace ingot::server::responses {

// What POST /v1/responses has of its own: a part of openai::parameter_table().
std::span<const openai::Parameter> own_parameters();

}  // namespace ingot::server::responses
