#pragma once

#include "backend/backend.h"
#include "backend/metal/memory.h"

namespace ingot::metal {

// A staged step with its arrays as views of the private buffer they are copied to.
class StepView {
 public:
  StepView() = default;
  StepView(const StagedStep& step, MTL::Buffer* buffer) : step_(step), buffer_(buffer) {}

  const StagedStep& step() const { return step_; }
  BufferView token_ids() const { return at(step_.token_ids, 4 * tokens()); }
  BufferView positions() const { return at(step_.positions, 4 * tokens()); }
  BufferView slots() const { return at(step_.slots, 8 * tokens()); }
  BufferView query_start() const { return at(step_.query_start, 4 * (seqs() + 1)); }
  BufferView seq_lens() const { return at(step_.seq_lens, 4 * seqs()); }
  BufferView block_table() const { return at(step_.block_table, 4 * seqs() * static_cast<size_t>(step_.max_blocks)); }
  BufferView block_copies() const { return at(step_.block_copies, 8 * static_cast<size_t>(step_.copies)); }
  BufferView block_zeros() const { return at(step_.block_zeros, 4 * static_cast<size_t>(step_.zeros)); }
  BufferView sample_rows() const { return at(step_.sample_rows, 4 * samples()); }
  BufferView sampling() const { return at(step_.sampling, sizeof(StagedSampling) * samples()); }
  BufferView resets() const { return at(step_.reset_words, 16 * static_cast<size_t>(step_.resets)); }
  BufferView pool() const { return at(step_.pool, step_.bytes - step_.pool); }

 private:
  size_t tokens() const { return static_cast<size_t>(step_.tokens); }
  size_t seqs() const { return static_cast<size_t>(step_.seqs); }
  size_t samples() const { return static_cast<size_t>(step_.samples); }
  BufferView at(size_t offset, size_t bytes) const { return {buffer_, offset, bytes}; }

  StagedStep step_;
  MTL::Buffer* buffer_ = nullptr;
};

}  // namespace ingot::metal
