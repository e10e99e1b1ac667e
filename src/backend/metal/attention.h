#pragma once

#include <cstdint>
#include <string>

#include "backend/metal/attention_cut.h"
#include "backend/metal/encoder.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/step.h"

namespace ingot::metal {

// Arguments that decode and prefill share; see DecodeAttentionOp.
struct AttentionArgs {
  int64_t layer = 0;
  AttentionShape shape;
  BufferView qkv, rope, out;
  BufferView q_norm, k_norm;  // f32 [head size] or none
  float norm_eps = 0;
};

// Encodes attention over one cache. Long sequences are cut into splits at fixed positions; their partial results live
// in memory of its own, made in a rehearsal.
class Attention {
 public:
  // `max_length`: the longest sequence there can be; with it the length of a split is chosen.
  Attention(const KvCache& cache, DType activation, int64_t max_length);

  void decode(Context& context, const StepView& input, const AttentionArgs& args);
  void prefill_write(Context& context, const StepView& input, const AttentionArgs& args);
  void prefill(Context& context, const StepView& input, const AttentionArgs& args);

  int64_t split() const { return split_; }

 private:
  struct Params;
  bool shared(const AttentionShape& shape) const;
  AttentionCut cut(const AttentionShape& shape, int64_t rows, int64_t longest) const;
  void decode(Context& context, const StepView& input, const AttentionArgs& args, AttentionCut cut);
  Params params(const StagedStep& step, const AttentionArgs& args) const;
  void reserve(Context& context, size_t bytes);

  const KvCache& cache_;
  std::string decode_name_, shared_name_, roomy_name_, write_name_, prefill_name_;
  int64_t split_ = 0;
  BufferPtr
      partial_;  // sums f32 [D, heads, pieces, head size], then (largest score, sum of weights) [D, heads, pieces]
  size_t partial_bytes_ = 0;
};

}  // namespace ingot::metal
