#include <algorithm>
#include <utility>

#include "backend/metal/ops.h"

namespace ingot::metal {

bool adds_slices(const NormOp& op, const Context& context) {
  if (!context.slices_left || !context.slices_left->norm_may_add) return false;
  const SlicesLeft& left = *context.slices_left;
  const BufferView in = context.words(op.in, op.rows * op.dim);
  return left.out.buffer == in.buffer && left.out.offset == in.offset && left.rows == op.rows && left.cols == op.dim &&
         op.stride() % 4 == 0;
}

void encode(const NormOp& op, Context& context) {
  Encoder& encoder = context.encoder;
  std::optional<SlicesLeft> left;
  if (adds_slices(op, context)) left = std::exchange(context.slices_left, {});
  if (left && left->maybe) {
    context.slices_left = left;
    context.slices_left->maybe = false;
    encode(op, context);
    left.reset();
  }
  const BufferView weight = context.vector(op.weight), bias = context.vector(op.bias);
  const char* kernel = op.accumulate || op.f32_out        ? "norm_f32"
                       : context.activation == DType::f16 ? "norm_f16"
                                                          : "norm_bf16";
  encoder.use(kernel, {Constant::b(kNormLayer, op.kind == NormKind::layer), Constant::b(kNormWeight, bool(weight)),
                       Constant::b(kNormBias, bool(bias)), Constant::b(kNormAdd, op.accumulate),
                       Constant::b(kNormCopy, op.f32_copy.bytes > 0),
                       Constant::u(kNormSlices, left ? left->plan.params.columns.slices : 0),
                       Constant::u(kNormFormat, left ? packed_format(left->format) : 0)});
  const int64_t elements = op.rows * op.dim, column = op.out_column;
  // From the first row's values to the last row's end.
  const int64_t written = op.rows * op.stride() - column;
  const auto from_column = [column](BufferView view, size_t bytes) {
    view.offset += static_cast<size_t>(column) * bytes;
    return view;
  };
  if (left) {
    encoder.update(0, context.words(op.in, elements));
    encoder.read(6, left->partials);
  } else {
    encoder.read(0, context.words(op.in, elements));
  }
  if (weight) encoder.weight(1, weight);
  if (bias) encoder.weight(2, bias);
  if (op.accumulate)
    encoder.update(3, from_column(context.words(op.out, written), 4));
  else
    encoder.write(3, op.f32_out ? from_column(context.words(op.out, written), 4)
                                : from_column(context.activations(op.out, written), 2));
  if (op.f32_copy.bytes > 0) encoder.write(5, context.words(op.f32_copy, elements));
  encoder.value(4, NormParams{.eps = op.eps,
                              .dim = static_cast<uint32_t>(op.dim),
                              .width = static_cast<uint32_t>(op.stride()),
                              .slice_rows = left ? left->plan.bucket : 0});
  // Two vectors of four a thread: short rows do not keep more busy. The choice depends on the dimension alone: so does
  // the order of sums.
  const int64_t simdgroups = std::clamp<int64_t>((op.dim + 255) / 256, 1, 32);
  encoder.dispatch({static_cast<NS::UInteger>(op.rows), 1, 1}, {static_cast<NS::UInteger>(simdgroups) * 32, 1, 1});
}

}  // namespace ingot::metal
