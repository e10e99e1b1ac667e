#include "cli/sampling_args.h"

#include <CLI/CLI.hpp>

namespace ingot::cli {

void add_sampling_options(CLI::App& command, SamplingArgs& args) {
  SamplingParams& p = args.params;
  const auto add = [&command](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->capture_default_str();
  };
  add("--temperature", p.temperature, "0: greedy")->check(CLI::NonNegativeNumber);
  add("--top-k", p.top_k, "sample from the k most likely; 0: all");
  add("--top-p", p.top_p, "sample from the smallest set with this much probability");
  add("--min-p", p.min_p, "drop tokens below this share of the most likely one");
  add("--presence-penalty", p.presence_penalty, "subtracted for tokens already generated");
  add("--frequency-penalty", p.frequency_penalty, "subtracted per occurrence");
  add("--repetition-penalty", p.repetition_penalty, "above 1: less repetition");
  add("--min-tokens", p.min_tokens, "do not stop before this many tokens");
  add("--seed", args.seed, "the same seed gives the same answer; negative: a random one");
  command.add_flag("--ignore-eos", args.ignore_eos, "go on after the end-of-text token");
}

}  // namespace ingot::cli
