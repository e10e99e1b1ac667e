#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "ingot/step.h"

namespace ingot {

// Assembles a well-formed Step from sequences, so that nobody counts totals by hand. Add the decode sequences (one row
// each) first; the kind follows from what was added.
class StepBuilder {
 public:
  explicit StepBuilder(int64_t block_size) : block_size_(block_size) {}

  void clear();
  bool empty() const { return step_.token_ids.empty(); }
  int32_t rows() const { return static_cast<int32_t>(step_.token_ids.size()); }

  // Adds rows for positions [start, start + ids.size()) of a sequence whose blocks are `blocks`; returns its first row.
  int32_t add(std::span<const int32_t> ids, int64_t start, std::span<const int32_t> blocks);
  // Asks for the output of a row (rows in ascending order). `mask`: the tokens it may draw, ceil(vocab / 32) words that
  // live until finish(); empty: all.
  void sample(int32_t row, SamplingParams params, int32_t slot = -1, RowOutput output = {},
              std::span<const uint32_t> mask = {});
  // Pools the sequence that was added last.
  void pool(int32_t slot) { step_.pooled.push_back({static_cast<int32_t>(num_blocks_.size()) - 1, slot}); }
  void reset_sampler(SamplerReset reset) { step_.sampler_resets.push_back(std::move(reset)); }

  // Fills in the totals and the block table. The reference stays valid until the next change.
  const Step& finish();
  Step& step() { return step_; }
  const Step& step() const { return step_; }

 private:
  int64_t block_size_;
  Step step_;
  std::vector<int32_t> blocks_;                   // those that each sequence fills, one sequence after the other
  std::vector<int32_t> num_blocks_;               // how many of them a sequence has
  std::vector<std::span<const uint32_t>> masks_;  // of each sampled row
};

// The kind and the totals that follow from a step's arrays; the first `num_decode` sequences are decoding.
void set_totals(Step& step, int32_t num_decode);

}  // namespace ingot
