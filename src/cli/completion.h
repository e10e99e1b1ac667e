#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ingot::cli {

// What Tab does to a line of a chat: commands, the names behind /set, and files behind /save and /load.
struct Completion {
  std::string insert;                // at the cursor
  std::vector<std::string> choices;  // more than one: what it could become
};
Completion complete_line(std::string_view before_cursor, const std::vector<std::string>& commands,
                         const std::vector<std::string>& settings);

// "~/x" with the home folder in its place.
std::string expand_home(const std::string& path);

}  // namespace ingot::cli
