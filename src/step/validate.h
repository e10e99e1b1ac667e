#pragma once

#include <cstdint>
#include <vector>

#include "core/error.h"
#include "ingot/engine.h"
#include "ingot/step.h"

namespace ingot {

// Whether a row with these parameters needs a sampler slot: they depend on what was generated so far.
bool needs_history(const SamplingParams& params);

// Whether output row r goes on with the slot of the row before it: both draw, are neighbours in one sequence, and so r
// is drawn as if the tokens up to its own had been (a draft that is being verified).
bool continues_draft(const Step& step, int64_t r);

// Whether the step does something to blocks before its rows, which it then may have none of.
bool moves_blocks(const Step& step);

// What the validator must know of the steps before: the part of the engine's state that a step refers to.
struct StepHistory {
  // For each row the previous step sampled: whether it produced a token that a negative token id may name.
  std::vector<bool> previous_tokens;
  // Tokens a sampler slot holds; -1: never reset.
  std::vector<int64_t> slot_lengths;
  int64_t slot_capacity = 0;
  std::vector<int64_t> pooled_rows;  // by slot: how many were pooled so far
};

// Checks a whole step against the limits before anything is touched. Throws StepError for the first fault found.
class StepValidator {
 public:
  explicit StepValidator(const EngineLimits& limits) : limits_(limits) {}
  void validate(const Step& step, const StepHistory& history) const;
  // One row's parameters by themselves; `row` is only for the error.
  void check_sampling(const SamplingParams& params, int64_t row) const;

 private:
  void check_totals(const Step& step) const;
  void check_sequences(const Step& step) const;
  void check_tokens(const Step& step, const StepHistory& history) const;
  void check_blocks(const Step& step) const;
  void check_resets(const Step& step, const StepHistory& history) const;
  void check_samples(const Step& step, const StepHistory& history) const;
  void check_pooled(const Step& step, const StepHistory& history) const;
  void check_states(const Step& step) const;

  EngineLimits limits_;
  mutable std::vector<int64_t> scratch_;  // sorted copies for the uniqueness checks
};

}  // namespace ingot
