#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/common.h"

namespace ingot::cli {

struct SpeculationBenchArgs {
  ModelArgs model;
  SpeculationArgs speculation;
  std::optional<double> acceptance;  // guesses come true with this chance, whatever the models say
  std::vector<int32_t> batches;
  int64_t prompt_len = 0;
  int64_t gen_len = 0;
  bool json = false;
};

// What guessing tokens is worth: the same requests with and without, by turns.
void print_speculation(const SpeculationBenchArgs& args);

}  // namespace ingot::cli
