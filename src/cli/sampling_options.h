#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/structured_options.h"
#include "ingot/llm.h"

namespace ingot::cli {

class Options;

// The flags that say how tokens are chosen, the same in every command that generates.
struct SamplingArgs {
  SamplingParams sampling{.temperature = 0};
  int64_t max_tokens = 128;
  int64_t seed = -1;  // negative: a random one
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;
  bool ignore_eos = false;
  StructuredArgs structured;
};

// The defaults in `args` are shown by --help.
void add_sampling_options(Options command, SamplingArgs& args);

// A request with these parameters and no prompt yet.
GenerationRequest make_request(const SamplingArgs& args);

}  // namespace ingot::cli
