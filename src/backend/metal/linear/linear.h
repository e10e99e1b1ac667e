#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/metal/linear/plan.h"
#include "backend/metal/memory.h"
#include "backend/op.h"

namespace ingot::metal {

struct Context;
struct GemmOperands;

// A matrix [rows, cols] on the device, in the layout of kernels/linear_formats.h.
struct PackedMatrix {
  std::string name;
  int64_t rows = 0, cols = 0;
  BufferPtr data;
  size_t bytes = 0;  // read when the whole matrix is used once
  std::vector<Segment> segments;
  // Where ranks could cut the columns: those of each cut packed by themselves, one after the other. One segment then.
  std::vector<LinearCut> cuts;
  int left = 0;  // how many of them make the first sum; the others are the second

  BufferView view(const Segment& segment) const {
    return {data.get(), segment.offset, cuts.empty() ? segment.bytes(cols) : bytes};
  }
};

// Bytes of the packed matrix, for the memory plan: those of its tensors, rows rounded up to 8. Every format has
// kernels.
size_t packed_bytes(const MatrixSpec& spec);
PackedMatrix pack_matrix(const MatrixSpec& spec, Memory& memory, const DropPages& drop, ThreadPool& pool);

// The buffers of a product of one segment of a matrix, beside its shape. `up` is set for a gated one, with a segment of
// as many rows.
struct Operands {
  const PackedMatrix* weight = nullptr;
  const Segment* segment = nullptr;
  const PackedMatrix* up = nullptr;
  const Segment* up_segment = nullptr;
  BufferView in;             // [rows, cols], of the shape's type
  BufferView bias, bias_up;  // f32 [N] or none
  BufferView out;
  BufferView items, starts, order;  // of experts
  bool slices_may_wait = false;     // whoever calls sees to SlicesLeft
};
// What the operands say need not be in `shape`.
void encode_product(Context& context, LinearShape shape, const Operands& operands);
// The dispatch that a plan says, and the one that adds its slices. Of `operands` only what experts need is looked at,
// and whether slices may wait.
void encode_plan(Context& context, const LinearShape& shape, const LinearPlan& plan, const GemmOperands& buffers,
                 const Operands& operands);

// Sums of the slices of a product that nobody has added up yet: a norm of what they are added to does it on its way,
// or add_slices() before anything else is encoded.
struct SlicesLeft {
  // In a rehearsal: there are none, but there would be by another way, which may be found faster while steps run.
  bool maybe = false;
  LinearPlan plan;
  BufferView partials, bias, out;
  bool accumulate = false;
  // What a norm must know of `out`, [rows, cols], and of the weights.
  bool norm_may_add = false;
  int64_t rows = 0, cols = 0;
  DType format = DType::f16;
};
void add_slices(Context& context);

// Rows that are not rounded to activations of `activation` on their way (LinearOp::f32_in) have a kernel of their own.
bool is_unrounded(const LinearShape& shape, DType activation);
void encode_unrounded(Context& context, const LinearShape& shape, const GemmOperands& buffers);

// Rows of one expert that are multiplied at a time; from the rows of the step, rounded up to a power of two.
int64_t expert_item_rows(const ExpertRoute& route, int family);

}  // namespace ingot::metal
