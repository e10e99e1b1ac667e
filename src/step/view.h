#pragma once

#include <cstddef>
#include <cstdint>

#include "step/staged.h"

namespace ingot {

// A staged step with its arrays, where the host wrote them.
class StepView {
 public:
  StepView() = default;
  StepView(const StagedStep& step, const std::byte* base) : step_(step), base_(base) {}

  const StagedStep& step() const { return step_; }
  const int32_t* token_ids() const { return at<int32_t>(step_.token_ids); }
  const int32_t* positions() const { return at<int32_t>(step_.positions); }
  const int64_t* slots() const { return at<int64_t>(step_.slots); }
  const int32_t* query_start() const { return at<int32_t>(step_.query_start); }
  const int32_t* seq_lens() const { return at<int32_t>(step_.seq_lens); }
  const int32_t* blocks(int64_t seq) const { return at<int32_t>(step_.block_table) + seq * step_.max_blocks; }
  const int32_t* block_saves() const { return at<int32_t>(step_.block_saves); }
  const int32_t* block_loads() const { return at<int32_t>(step_.block_loads); }
  const int32_t* block_copies() const { return at<int32_t>(step_.block_copies); }
  const int32_t* block_zeros() const { return at<int32_t>(step_.block_zeros); }
  const int32_t* state_rows() const { return at<int32_t>(step_.state_rows); }
  const float* floats(size_t offset) const { return at<float>(offset); }
  const int32_t* sample_rows() const { return at<int32_t>(step_.sample_rows); }
  const StagedSampling* sampling() const { return at<StagedSampling>(step_.sampling); }
  const int32_t* resets() const { return at<int32_t>(step_.reset_words); }
  const int32_t* pool() const { return at<int32_t>(step_.pool); }

 private:
  template <typename T>
  const T* at(size_t offset) const {
    return reinterpret_cast<const T*>(base_ + offset);
  }

  StagedStep step_;
  const std::byte* base_ = nullptr;
};

}  // namespace ingot
