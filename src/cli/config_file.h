#pragma once

#include <string>
#include <vector>

namespace ingot::cli {

class Options;

// Replaces `--config FILE` among a command's arguments by the flags in that file, except those that the command line
// has itself. The file has one `name = value` a line, named as the flags are; `#` begins a comment; quotes around a
// value are optional; a switch takes true or false; a flag that may be repeated has a line for each value, or a list
// [a, b]. Throws Error(bad_call) naming file and line.
std::vector<std::string> expand_config_file(const Options& command, std::vector<std::string> arguments);

}  // namespace ingot::cli
