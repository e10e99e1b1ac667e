#include "backend/metal/linear/gemm.h"
#include "backend/metal/linear/linear.h"
#include "backend/metal/linear/plan.h"
#include "backend/metal/ops.h"
#include "core/ceil_div.h"

// Products of f32 rows beside activations of 16 bits, in an order of their own: kernels/linear_unrounded.metal.
namespace ingot::metal {

bool is_unrounded(const LinearShape& shape, DType activation) {
  return shape.in == DType::f32 && activation != DType::f32 && shape.cuts == 0 && shape.experts == 0 &&
         !shape.activation && !shape.plain_activation;
}

void encode_unrounded(Context& context, const LinearShape& shape, const GemmOperands& buffers) {
  const int64_t rows = shape.rows == 1 ? 1 : 8;
  LinearParams p{.output_groups = static_cast<uint32_t>(ceil_div(shape.outputs, kPanelRows))};
  p.columns.planes = packed_planes(shape.format, shape.cols);
  p.columns.cols = static_cast<uint32_t>(shape.cols);
  p.out = linear_out(shape);
  p.rows = static_cast<uint32_t>(shape.rows);
  p.x_stride = static_cast<uint32_t>(shape.x_stride > 0 ? shape.x_stride : shape.cols);
  p.outputs = static_cast<uint32_t>(shape.outputs);

  Encoder& encoder = context.encoder;
  encoder.use("linear_unrounded", {Constant::u(kUnroundedFormat, packed_format(shape.format)),
                                   Constant::u(kUnroundedRows, static_cast<uint32_t>(rows))});
  encoder.weight(0, buffers.weight);
  encoder.read(2, buffers.in);
  // A bias that is not there is something else that is never written.
  encoder.weight(3, buffers.bias ? buffers.bias : BufferView{buffers.weight.buffer, buffers.weight.offset, 0});
  if (shape.accumulate)
    encoder.update(5, buffers.out);
  else
    encoder.write(5, buffers.out);
  encoder.value(6, p);
  encoder.threadgroup_memory(0, static_cast<size_t>(kUnroundedParts * rows * kPanelRows) * sizeof(float));
  encoder.dispatch({p.output_groups * static_cast<uint32_t>(ceil_div(shape.rows, rows)), 1, 1},
                   {kUnroundedParts * 32, 1, 1});
}

}  // namespace ingot::metal
