#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/metal/attention.h"
#include "backend/metal/encoder.h"
#include "backend/metal/host_blocks.h"
#include "backend/metal/kv_cache.h"
#include "backend/metal/linear/choices.h"
#include "backend/metal/linear/gemm.h"
#include "backend/metal/linear/linear.h"
#include "backend/metal/linear/wide.h"
#include "backend/metal/mailboxes.h"
#include "backend/metal/memory.h"
#include "backend/metal/sampling.h"
#include "backend/op.h"
#include "core/ceil_div.h"

namespace ingot::metal {

struct Weight {  // one of the two
  PackedMatrix matrix;
  BufferPtr vector;
  size_t vector_bytes = 0;
};

// What the operations of a device work on while a step is encoded.
struct Context {
  Encoder& encoder;
  Memory& memory;
  Gemm& gemm;                     // prefill by the device's own library, where there is one
  Wide& wide;                     // or by warpgroups, where simdgroups multiply four together
  LinearChoices& choices;         // which way products go
  DType activation = DType::f16;  // f16 or bf16; residual stream and logits are f32
  int family = 7;                 // newest Apple GPU family supported: 7 (M1) ... 10 (M5)
  size_t threadgroup_bytes = 0;   // that a threadgroup may have
  std::vector<Weight> weights;    // by WeightId
  BufferPtr scratch;              // activations
  BufferPtr partials;             // sums of matrix products that are split or in cuts, made when steps are rehearsed
  BufferPtr output;               // of the step's samples and pooled sequences
  size_t pooled = 0;              // OutputLayout::pooled
  size_t states = 0;              // OutputLayout::states,
  int64_t state_width = 0;        // and how wide its rows are
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<HostBlocks> host_blocks;
  std::unique_ptr<Attention> attention;
  std::unique_ptr<Sampler> sampler;
  std::unique_ptr<Mailboxes> mailboxes;  // of ranks that have the model together; null: it is alone
  std::optional<SlicesLeft> slices_left;  // by the last operation; see linear.h
  bool answers = false;                  // the step being encoded sends its outputs to rank 0

  StagedStep step;
  BufferPtr input;                       // its arrays
  const std::byte* staged_at = nullptr;  // where the host has them
  uint64_t number = 1;                   // of the step
  StepTimes* times = nullptr;            // what it counts

  const PackedMatrix& matrix(WeightId id) const { return weights[static_cast<size_t>(id.index)].matrix; }
  // Nothing when the weight is absent.
  BufferView vector(WeightId id) const {
    if (!id) return {};
    const Weight& weight = weights[static_cast<size_t>(id.index)];
    return {weight.vector.get(), 0, weight.vector_bytes};
  }
  // The first elements of a region; what lies behind them is not this dispatch's business.
  BufferView words(Region region, int64_t n) const {
    return {scratch.get(), region.offset, static_cast<size_t>(n) * 4};
  }
  BufferView activations(Region region, int64_t n) const {
    return {scratch.get(), region.offset, static_cast<size_t>(n) * 2};
  }
  // An array of the step, by its place: StagedStep::positions, say.
  BufferView staged(size_t offset) const { return {input.get(), offset, step.bytes - offset}; }
};

inline NS::UInteger groups_of(int64_t n, int64_t size) { return static_cast<NS::UInteger>(ceil_div(n, size)); }

}  // namespace ingot::metal
