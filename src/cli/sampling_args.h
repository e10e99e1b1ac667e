#pragma once

#include <cstdint>

#include "ingot/step.h"

namespace CLI {
class App;
}

namespace ingot::cli {

// The sampling flags of the commands that generate text.
struct SamplingArgs {
  SamplingParams params;
  int64_t seed = -1;  // negative: a random one
  bool ignore_eos = false;
};

// Adds the flags; what `args` holds are the defaults that --help shows.
void add_sampling_options(CLI::App& command, SamplingArgs& args);

}  // namespace ingot::cli
