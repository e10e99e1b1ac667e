#include "backend/metal/linear/gemm.h"

#include <algorithm>

#include "backend/metal/context.h"
#include "core/ceil_div.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

// Sums of so many outputs and rows, [kPieceRows][kPieceOutputs], stay in the GPU's cache while slices are added to
// them.
constexpr int64_t kPieceOutputs = 4096;  // of both matrices together
constexpr int64_t kPieceGranule = 256;
constexpr int64_t kPieceRows = 2048;

const char* suffix(DType type) { return type == DType::f16 ? "_f16" : "_bf16"; }

BufferView part(BufferView view, size_t offset, size_t bytes) { return {view.buffer, view.offset + offset, bytes}; }

// Columns of plain rows.
int64_t padded_columns(DType format, int64_t cols) {
  const int64_t block = std::max(4 * packed_unit_columns(format), int64_t{kLinearTurn});
  return ceil_div(cols, block) * block;
}

// Rows of W, or of x, in plain rows.
void unpack(Context& context, const char* kernel, const LinearShape& shape, DType format, int64_t first, int64_t rows,
            BufferView from, bool is_weight, BufferView out) {
  Encoder& encoder = context.encoder;
  encoder.use(std::string(kernel) + suffix(tile_type(shape)), {Constant::u(kLinearFormat, packed_format(format)),
                                                               Constant::u(kLinearX, static_cast<int64_t>(shape.in))});
  if (is_weight)
    encoder.weight(0, from);
  else
    encoder.read(0, from);
  encoder.write(1, out);
  encoder.value(2, GemmUnpackParams{packed_planes(format, shape.cols), static_cast<uint32_t>(shape.cols),
                                    static_cast<uint32_t>(shape.x_stride > 0 ? shape.x_stride : shape.cols),
                                    static_cast<uint32_t>(first), static_cast<uint32_t>(rows)});
  const int64_t units = padded_columns(format, shape.cols) / packed_unit_columns(format);
  encoder.dispatch(MTL::Size(static_cast<NS::UInteger>(ceil_div(units, int64_t{4 * kGemmSimdgroups})),
                             static_cast<NS::UInteger>(ceil_div(rows, kPanelRows)), 1),
                   MTL::Size(32 * kGemmSimdgroups, 1, 1));
}

}  // namespace

Gemm::Gemm(NS::SharedPtr<MTL::Device> device) : device_(std::move(device)), name_(host::gemm_name(device_.get())) {}

size_t Gemm::work_bytes(int64_t rows, int64_t cols) const {
  if (name_.empty()) return 0;
  rows = std::min(rows, kPieceRows);
  return static_cast<size_t>((kPieceOutputs + rows) * cols) * 2 + static_cast<size_t>(rows * kPieceOutputs) * 4;
}

bool Gemm::takes(const LinearShape& shape) const {
  return !name_.empty() && shape.experts == 0 && shape.cuts == 0 && tile_type(shape) != DType::f32;
}

void Gemm::multiply(Context& context, const LinearShape& shape, DType format, int64_t outputs, int64_t width,
                    int64_t rows, BufferView x, BufferView weights, BufferView sums) {
  const int64_t stride = padded_columns(format, shape.cols), slice = slice_columns(format, shape.cols);
  for (int64_t first = 0; first < stride; first += slice) {
    const host::GemmProduct product{.type = tile_type(shape),
                                    .out_type = DType::f32,
                                    .accumulate = first > 0,
                                    .rows = rows,
                                    .outputs = outputs,
                                    .cols = std::min(slice, stride - first),
                                    .stride = stride,
                                    .out_stride = width};
    const auto skip = static_cast<size_t>(first) * 2;
    if (context.encoder.rehearsing())
      host::prepare_gemm(device_.get(), product);
    else
      context.encoder.gemm(product, part(x, skip, x.bytes - skip), part(weights, skip, weights.bytes - skip), sums);
  }
}

void Gemm::encode(Context& context, const LinearShape& shape, const GemmOperands& operands) {
  const bool gated = shape.activation.has_value(), alike = !gated || shape.format == shape.format_up;
  const int64_t matrices = gated ? 2 : 1;
  // Pieces as equal as they can be.
  const int64_t pieces = ceil_div(shape.outputs * matrices, kPieceOutputs);
  const int64_t piece = ceil_div(ceil_div(shape.outputs, pieces), kPieceGranule) * kPieceGranule;
  const int64_t stride = padded_columns(shape.format, shape.cols);
  const int64_t stride_up = gated ? padded_columns(shape.format_up, shape.cols) : 0;
  const DType format_up = gated ? shape.format_up : shape.format;
  Encoder& encoder = context.encoder;
  for (int64_t row = 0; row < shape.rows; row += kPieceRows) {
    const int64_t rows = std::min(kPieceRows, shape.rows - row);
    const auto x_bytes = static_cast<size_t>(rows * stride) * 2;
    const auto x_up_bytes = static_cast<size_t>(alike ? 0 : rows * stride_up) * 2;
    const BufferView x = context.memory.reserve(inputs_, x_bytes + x_up_bytes, "work inputs");
    unpack(context, "gemm_inputs", shape, shape.format, row, rows, operands.in, false, part(x, 0, x_bytes));
    if (!alike)
      unpack(context, "gemm_inputs", shape, format_up, row, rows, operands.in, false, part(x, x_bytes, x_up_bytes));
    for (int64_t first = 0; first < shape.outputs; first += piece) {
      const int64_t outputs = std::min(piece, shape.outputs - first);
      const int64_t each = ceil_div(outputs, int64_t{8}) * 8, width = each * matrices;  // rows begin where they should
      const auto bytes = static_cast<size_t>(each * stride) * 2, up_bytes = static_cast<size_t>(each * stride_up) * 2;
      const BufferView weights = context.memory.reserve(weights_, bytes + up_bytes, "work weights");
      const BufferView sums = context.memory.reserve(sums_, static_cast<size_t>(rows * width) * 4, "work sums");
      unpack(context, "gemm_weights", shape, shape.format, first, each, operands.weight, true, part(weights, 0, bytes));
      if (gated)
        unpack(context, "gemm_weights", shape, format_up, first, each, operands.up, true,
               part(weights, bytes, up_bytes));
      if (alike) {
        multiply(context, shape, shape.format, width, width, rows, part(x, 0, x_bytes), weights, sums);
      } else {
        const auto half = static_cast<size_t>(each) * 4;
        multiply(context, shape, shape.format, each, width, rows, part(x, 0, x_bytes), part(weights, 0, bytes), sums);
        multiply(context, shape, format_up, each, width, rows, part(x, x_bytes, x_up_bytes),
                 part(weights, bytes, up_bytes), part(sums, half, sums.bytes - half));
      }
      encoder.use("gemm_finish", {Constant::u(kLinearFormat, packed_format(shape.format)),
                                  Constant::u(kLinearFormatUp, packed_format(format_up)),
                                  Constant::u(kLinearActivation, activation_number(shape))});
      encoder.read(0, sums);
      const auto from_first = [&](BufferView bias) {
        const size_t skip = static_cast<size_t>(first) * 4;
        return bias ? part(bias, skip, bias.bytes - skip) : part(operands.weight, 0, 0);
      };
      encoder.weight(1, from_first(operands.bias));
      encoder.weight(2, from_first(operands.bias_up));
      const size_t skip = static_cast<size_t>(row * shape.out_stride + first) * dtype_bytes(shape.out, 1);
      encoder.update(3, part(operands.out, skip, operands.out.bytes - skip));
      encoder.value(4, GemmFinishParams{linear_out(shape), static_cast<uint32_t>(rows), static_cast<uint32_t>(outputs),
                                        static_cast<uint32_t>(width)});
      encoder.dispatch(MTL::Size(static_cast<NS::UInteger>(ceil_div(outputs, int64_t{kGemmFinishThreads})),
                                 static_cast<NS::UInteger>(rows), 1),
                       MTL::Size(kGemmFinishThreads, 1, 1));
    }
  }
}

}  // namespace ingot::metal
