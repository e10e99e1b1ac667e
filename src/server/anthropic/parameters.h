#pragma once

#include <span>

#include "server/openai/parameters.h"

namespace ingot::server::anthropic {

// What POST /v1/messages and its count_tokens have of their own: a part of openai::parameter_table().
std::span<const openai::Parameter> own_parameters();

}  // namespace ingot::server::anthropic
