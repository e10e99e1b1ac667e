#include "backend/metal/linear/gemm.h"

#include <algorithm>

#include "backend/metal/context.h"
#include "core/ceil_div.h"
#include "core/error.h"

namespace ingot::metal {
namespace {

constexpr size_t kMostWeightBytes = size_t{384} << 20;  // of unpacked weights at a time
constexpr int64_t kMostSumRows = 4096;                  // of sums that a kernel finishes, at a time
constexpr int64_t kSliceOutputs = 256;                  // outputs are cut at multiples of this
constexpr uint32_t kUnpackSimdgroups = 8, kFinishThreads = 256;
constexpr int64_t kUnpackUnits = 4 * kGemmBlocks * kUnpackSimdgroups;  // of a threadgroup

const char* suffix(DType type) { return type == DType::f16 ? "_f16" : type == DType::bf16 ? "_bf16" : "_f32"; }

BufferView part(BufferView view, size_t offset, size_t bytes) { return {view.buffer, view.offset + offset, bytes}; }

void unpack(Context& context, DType format, DType type, int64_t cols, int64_t first, int64_t rows, BufferView packed,
            BufferView out) {
  Encoder& encoder = context.encoder;
  encoder.use(std::string("gemm_unpack") + suffix(type), {Constant::u(kGemmFormat, packed_format(format))});
  encoder.weight(0, packed);
  encoder.write(1, out);
  encoder.value(2, GemmUnpackParams{packed_planes(format, cols), static_cast<uint32_t>(cols),
                                    static_cast<uint32_t>(first), static_cast<uint32_t>(rows)});
  const int64_t units = ceil_div(cols, packed_unit_columns(format));
  encoder.dispatch(MTL::Size(static_cast<NS::UInteger>(ceil_div(units, kUnpackUnits)),
                             static_cast<NS::UInteger>(ceil_div(rows, kPanelRows)), 1),
                   MTL::Size(32 * kUnpackSimdgroups, 1, 1));
}

}  // namespace

Gemm::Gemm(NS::SharedPtr<MTL::Device> device) : device_(std::move(device)), name_(host::gemm_name(device_.get())) {}

size_t Gemm::work_bytes(int64_t rows, int64_t cols) const {
  if (name_.empty()) return 0;
  const size_t weights = std::min(kMostWeightBytes, static_cast<size_t>(cols * cols) * 4);  // of a gated pair
  return weights + static_cast<size_t>(std::min(rows, kMostSumRows) * cols * 2) * sizeof(float);
}

bool Gemm::takes(const LinearShape& shape) const {
  return !name_.empty() && shape.experts == 0 && tile_type(shape) != DType::f32 && shape.cols % 8 == 0 &&
         shape.outputs % 8 == 0 && shape.out_stride % 8 == 0;
}

BufferView Gemm::reserve(Context& context, BufferPtr& buffer, size_t bytes, const char* label) {
  if (!buffer || buffer->length() < bytes) {
    buffer = context.memory.new_private(bytes, label);
    context.memory.commit_residency();
  }
  return {buffer.get(), 0, bytes};
}

void Gemm::multiply(Context& context, const LinearShape& shape, DType out_type, bool accumulate, int64_t outputs,
                    int64_t out_stride, int64_t rows, BufferView x, BufferView weights, BufferView out) {
  const host::GemmProduct product{.type = tile_type(shape),
                                  .out_type = out_type,
                                  .accumulate = accumulate,
                                  .rows = rows,
                                  .outputs = outputs,
                                  .cols = shape.cols,
                                  .out_stride = out_stride};
  if (context.encoder.rehearsing()) return host::prepare_gemm(device_.get(), product);
  context.encoder.gemm(product, x, weights, out);
}

void Gemm::encode(Context& context, const LinearShape& shape, const GemmOperands& operands) {
  const DType type = tile_type(shape);
  const bool gated = shape.activation.has_value();
  const bool finishes = gated || shape.bias || shape.plain_activation;
  const int64_t matrices = gated ? 2 : 1;
  const size_t row_bytes = static_cast<size_t>(shape.cols) * 2, out_bytes = dtype_bytes(shape.out, 1);
  const int64_t first_row = few_rows(shape), rows = shape.rows - first_row;
  // How W is cut does not depend on the rows: what is prepared once serves every step.
  const int64_t pieces =
      ceil_div(static_cast<int64_t>(row_bytes) * shape.outputs * matrices, static_cast<int64_t>(kMostWeightBytes));
  const int64_t slice = ceil_div(ceil_div(shape.outputs, pieces), kSliceOutputs) * kSliceOutputs;
  for (int64_t first = 0; first < shape.outputs; first += slice) {
    const int64_t outputs = std::min(slice, shape.outputs - first);
    const size_t matrix_bytes = static_cast<size_t>(outputs) * row_bytes;
    const BufferView plain =
        reserve(context, weights_, matrix_bytes * static_cast<size_t>(matrices), "work unpacked weights");
    unpack(context, shape.format, type, shape.cols, first, outputs, operands.weight, part(plain, 0, matrix_bytes));
    if (gated)
      unpack(context, shape.format_up, type, shape.cols, first, outputs, operands.up,
             part(plain, matrix_bytes, matrix_bytes));
    for (int64_t done = 0; done < rows; done += kMostSumRows) {
      const int64_t count = std::min(kMostSumRows, rows - done), row = first_row + done;
      const BufferView x =
          part(operands.in, static_cast<size_t>(row) * row_bytes, static_cast<size_t>(count) * row_bytes);
      const size_t skip = static_cast<size_t>(row * shape.out_stride + first) * out_bytes;
      const BufferView out = part(operands.out, skip, operands.out.bytes - skip);
      if (!finishes) {
        multiply(context, shape, shape.out, shape.accumulate, outputs, shape.out_stride, count, x, plain, out);
        continue;
      }
      const int64_t width = outputs * matrices;
      const BufferView sums = reserve(context, sums_, static_cast<size_t>(count * width) * 4, "work sums");
      multiply(context, shape, DType::f32, false, width, width, count, x, plain, sums);
      Encoder& encoder = context.encoder;
      encoder.use(
          std::string("gemm_finish") + suffix(shape.out),
          {Constant::u(kLinearActivation, activation_number(shape)), Constant::b(kLinearAccumulate, shape.accumulate),
           Constant::b(kLinearHasBias, shape.bias), Constant::b(kLinearHasBiasUp, shape.bias_up)});
      encoder.read(0, sums);
      const size_t bias_skip = static_cast<size_t>(first) * 4;
      if (shape.bias) encoder.weight(1, part(operands.bias, bias_skip, operands.bias.bytes - bias_skip));
      if (shape.bias_up) encoder.weight(2, part(operands.bias_up, bias_skip, operands.bias_up.bytes - bias_skip));
      encoder.update(3, out);
      encoder.value(4, GemmFinishParams{static_cast<uint32_t>(count), static_cast<uint32_t>(outputs),
                                        static_cast<uint32_t>(shape.out_stride)});
      encoder.dispatch(MTL::Size(static_cast<NS::UInteger>(ceil_div(count * outputs / 4, kFinishThreads)), 1, 1),
                       MTL::Size(kFinishThreads, 1, 1));
    }
  }
}

}  // namespace ingot::metal
