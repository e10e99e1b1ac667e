#include "backend/metal/linear/linear.h"

#include <algorithm>
#include <utility>

#include "backend/metal/linear/choices.h"
#include "backend/metal/linear/plan.h"
#include "backend/metal/ops.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

// From element `first` on.
BufferView from(BufferView view, int64_t first, DType type) {
  const size_t skip = static_cast<size_t>(first) * dtype_bytes(type, 1);
  return {view.buffer, view.offset + skip, view.bytes - skip};
}

void write_out(Encoder& encoder, bool accumulate, BufferView out) {
  if (accumulate)
    encoder.update(5, out);
  else
    encoder.write(5, out);
}

// Whole rows of the residual stream, and nothing between the sum and what it is added to.
bool norm_may_add(const LinearShape& shape) {
  return shape.accumulate && !shape.bias && !shape.plain_activation && shape.outputs == shape.out_stride &&
         shape.outputs % kPanelRows == 0;
}

}  // namespace

void encode_plan(Context& context, const LinearShape& shape, const LinearPlan& plan, const GemmOperands& buffers,
                 const Operands& operands) {
  Encoder& encoder = context.encoder;
  // A bias that is not there is something else that is never written.
  const BufferView none = {buffers.weight.buffer, buffers.weight.offset, 0};
  encoder.use(plan.kernel, plan.constants);
  encoder.weight(0, buffers.weight);
  if (buffers.up) encoder.weight(1, buffers.up);
  encoder.read(2, buffers.in);
  encoder.weight(3, buffers.bias ? buffers.bias : none);
  if (buffers.up) encoder.weight(4, buffers.bias_up ? buffers.bias_up : none);
  BufferView partials;
  if (plan.partial_bytes > 0) {
    partials = context.memory.reserve(context.partials, plan.partial_bytes, "work sums");
    encoder.write(10, partials);
  }
  write_out(encoder, shape.accumulate, buffers.out);
  encoder.value(6, plan.params);
  if (shape.cuts > 0) encoder.value(11, plan.cuts);
  if (shape.experts > 0) {
    encoder.read(7, operands.items);
    encoder.read(8, operands.starts);
    encoder.read(9, operands.order);
  }
  encoder.threadgroup_memory(0, plan.threadgroup_bytes);
  encoder.dispatch({plan.groups, 1, 1}, {plan.threads, 1, 1});
  const bool maybe = encoder.rehearsing() && plan.add_groups == 0 && operands.slices_may_wait &&
                     context.family == kNvidiaFamily && norm_may_add(shape);
  if (plan.add_groups == 0 && !maybe) return;
  context.slices_left = SlicesLeft{.maybe = maybe,
                                   .plan = plan,
                                   .partials = maybe ? buffers.out : partials,
                                   .bias = buffers.bias ? buffers.bias : none,
                                   .out = buffers.out,
                                   .accumulate = shape.accumulate,
                                   .norm_may_add = norm_may_add(shape),
                                   .rows = shape.rows,
                                   .cols = shape.outputs,
                                   .format = shape.format};
  if (!operands.slices_may_wait) add_slices(context);
}

void add_slices(Context& context) {
  if (!context.slices_left) return;
  const SlicesLeft left = *std::exchange(context.slices_left, {});
  if (left.maybe) return;
  Encoder& encoder = context.encoder;
  encoder.use("linear_add", left.plan.constants);
  encoder.weight(3, left.bias);
  write_out(encoder, left.accumulate, left.out);
  encoder.value(6, left.plan.params);
  encoder.read(10, left.partials);
  encoder.dispatch({left.plan.add_groups, left.plan.add_row_groups, 1}, {kLinearAddThreads, 1, 1});
}

void encode_product(Context& context, LinearShape shape, const Operands& operands) {
  const PackedMatrix& weight = *operands.weight;
  const Segment& segment = *operands.segment;
  shape.format = segment.type;
  shape.cols = weight.cols;
  if (shape.experts == 0) {
    shape.outputs = segment.rows;
    shape.out_stride = weight.rows;
  }
  shape.cuts = static_cast<int>(weight.cuts.size());
  shape.left = weight.left;
  std::copy(weight.cuts.begin(), weight.cuts.end(), shape.cut.begin());
  if (shape.cuts > 0 && (operands.up != nullptr || shape.plain_activation || shape.out != DType::f32))
    throw_error(ErrorKind::internal, "{}: a product in cuts has plain f32 results", weight.name);
  shape.threadgroup_bytes = static_cast<int64_t>(context.threadgroup_bytes);
  shape.bias = static_cast<bool>(operands.bias);
  shape.bias_up = static_cast<bool>(operands.bias_up);
  if (operands.up != nullptr) shape.format_up = operands.up_segment->type;
  const int64_t first = segment.first_row;
  const BufferView in = operands.in, out = from(operands.out, first, shape.out);
  const BufferView bias = shape.bias ? from(operands.bias, first, DType::f32) : BufferView{};
  const BufferView bias_up = shape.bias_up ? from(operands.bias_up, first, DType::f32) : BufferView{};
  const BufferView up = operands.up != nullptr ? operands.up->view(*operands.up_segment) : BufferView{};
  if (is_unrounded(shape, context.activation))
    return encode_unrounded(context, shape, {weight.view(segment), up, in, bias, bias_up, out});
  if (context.wide.takes(shape))
    return context.wide.encode(context, shape, {weight.view(segment), up, in, bias, bias_up, out});
  const bool library = context.gemm.takes(shape);
  if (context.encoder.rehearsing()) context.choices.note(shape, operands, library);
  const LinearWay way = context.choices.way(shape, library);
  if (way.library) return context.gemm.encode(context, shape, {weight.view(segment), up, in, bias, bias_up, out});
  encode_plan(context, shape, plan_linear(shape, way.variant), {weight.view(segment), up, in, bias, bias_up, out},
              operands);
}

void encode(const LinearOp& op, Context& context) {
  const PackedMatrix& weight = context.matrix(op.weight);
  const PackedMatrix* up = op.up ? &context.matrix(op.up) : nullptr;
  if (up != nullptr && !std::equal(weight.segments.begin(), weight.segments.end(), up->segments.begin(),
                                   up->segments.end(), [](const auto& a, const auto& b) { return a.rows == b.rows; }))
    throw_error(ErrorKind::declined, "{} and {} change their format at different rows; store each in one format",
                weight.name, up->name);
  const bool f32 = op.accumulate || op.f32_out;
  LinearShape shape;
  shape.rows = op.rows;
  shape.in = op.f32_in ? DType::f32 : context.activation;
  shape.out = f32 ? DType::f32 : context.activation;
  shape.accumulate = op.accumulate;
  (up != nullptr ? shape.activation : shape.plain_activation) = op.activation;
  const int64_t elements = op.rows * weight.rows, inputs = op.rows * weight.cols;
  Operands operands{.weight = &weight,
                    .up = up,
                    .in = op.f32_in ? context.words(op.in, inputs) : context.activations(op.in, inputs),
                    .bias = context.vector(op.bias),
                    .bias_up = context.vector(op.up_bias),
                    .out = f32 ? context.words(op.out, elements) : context.activations(op.out, elements)};
  operands.slices_may_wait = true;
  for (size_t i = 0; i < weight.segments.size(); ++i) {
    operands.segment = &weight.segments[i];
    if (up != nullptr) operands.up_segment = &up->segments[i];
    encode_product(context, shape, operands);
  }
}

}  // namespace ingot::metal
