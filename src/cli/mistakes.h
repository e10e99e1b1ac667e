#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::cli {

// What to tell somebody who typed a word that is not there: what other programs mean by it, else the nearest of
// `names`, else nothing. It begins with a separator: "; did you mean --prompt?".
std::string remedy_for_option(std::string_view word, const std::vector<std::string>& names);
std::string remedy_for_command(std::string_view word, const std::vector<std::string>& names);

}  // namespace ingot::cli
