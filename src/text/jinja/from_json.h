#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/value.h"

namespace ingot::jinja {

Value from_json(const nlohmann::ordered_json& json);

}  // namespace ingot::jinja
