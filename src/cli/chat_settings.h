#pragma once

#include <string>
#include <string_view>

#include "cli/sampling_options.h"

namespace ingot::cli {

// What /set changes while a chat runs; named as the flags are, with - or _.
struct ChatSettings {
  SamplingArgs sampling{.max_tokens = 1024};

  // Throws Error(bad_call) that says what is allowed; then nothing has changed.
  void set(std::string_view name, std::string_view value);
  // One `name value` a line.
  std::string list() const;
  static std::vector<std::string> names();
};

}  // namespace ingot::cli
