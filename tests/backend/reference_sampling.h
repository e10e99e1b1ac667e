#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "ingot/step.h"

namespace ingot::test {

struct ReferenceRow {
  int32_t token = -1;
  double logprob = 0.0;
  int32_t rank = 0;
  std::vector<std::pair<int32_t, double>> top;  // (id, logprob or logit)
};

// What the parameters leave of a row, as probabilities that add up to 1 (all 0 when no token is left).
std::vector<double> reference_distribution(std::span<const float> logits, const StagedSampling& params,
                                           const int32_t* pool, std::span<const int32_t> prompt,
                                           std::span<const int32_t> output);

// One row of SampleOp: sorts the whole vocabulary, in double.
ReferenceRow reference_sample(std::span<const float> logits, const StagedSampling& params, const int32_t* pool,
                              std::span<const int32_t> prompt, std::span<const int32_t> output);

// Uniform in [0, 1): Philox4x32-10 of (counter, 0) under key `seed`, its first two words as 53 bits.
double reference_uniform(uint64_t seed, uint64_t counter);

}  // namespace ingot::test
