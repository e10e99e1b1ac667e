#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// The name that differs from the word by a slip or two, dashes in front aside; empty when none does.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

}  // namespace ingot
