#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/layout.h"

// Where a model is cut into stages.
namespace ingot {

// What a part of a model takes of the machine that has it.
struct PartCost {
  uint64_t bytes = 0;
  double work = 0;  // bytes of weights that a row reads

  void add(uint64_t more, double read) {
    bytes += more;
    work += static_cast<double>(more) * read;
  }
};

struct StageCosts {
  std::vector<PartCost> layers;
  PartCost first, last;      // the embedding; the final norm and the head
  uint64_t every_stage = 0;  // bytes beside weights and cache
};

// The machine of a stage: that of its poorest and of its slowest rank.
struct StageHost {
  uint64_t memory = 0;  // bytes; 0: unknown, taken for enough
  double speed = 1;     // work a second, in any unit that all of them have
};

// The layers of each stage: every stage fits its machine if that is possible at all (else the one that lacks most lacks
// the least), the slowest of them takes the least time, and of cuts as fast as that the one is taken whose fullest
// machine is the least full. Throws Error(declined) for more stages than layers.
std::vector<Range> cut_stages(const StageCosts& costs, std::span<const StageHost> hosts);

// The same as a person says it, so many layers each. Throws Error(bad_call) unless there are that many.
std::vector<Range> given_stages(std::span<const int> layers, int stages, int64_t all);

}  // namespace ingot
