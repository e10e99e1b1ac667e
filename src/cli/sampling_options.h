#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/structured_options.h"
#include "ingot/llm.h"

namespace ingot::cli {

class Options;

// The flags that say how tokens are chosen, the same in every command that generates.
struct SamplingArgs {
  SamplingParams sampling = kChatSampling;
  int64_t max_tokens = 128;
  int64_t seed = -1;  // negative: a random one
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;
  bool ignore_eos = false;
  std::function<bool(std::string_view name)> is_given;  // whether a flag of that name was
  StructuredArgs structured;
};

// The defaults in `args` are shown by --help.
void add_sampling_options(Options command, SamplingArgs& args);

// Puts what the model's makers say in the place of what no flag said.
void take_advice(SamplingArgs& args, const SamplingAdvice& advice);

// A request with these parameters and no prompt yet.
GenerationRequest make_request(const SamplingArgs& args);

}  // namespace ingot::cli
