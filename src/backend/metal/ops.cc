#include "backend/metal/ops.h"

#include <algorithm>
#include <string>

namespace ingot::metal {
namespace {

// Function constants of kernels/norm.metal.
enum : uint16_t { kNormLayer = 0, kNormWeight = 1, kNormBias = 2 };

constexpr int64_t kThreads = 256;

NS::UInteger groups_of(int64_t n, int64_t size) { return static_cast<NS::UInteger>((n + size - 1) / size); }

}  // namespace

void norm(Context& context, const NormOp& op, BufferView weight, BufferView bias) {
  struct Params {
    float eps;
    uint32_t dim;
  };
  Encoder& encoder = context.encoder;
  // Two vectors of four a thread: short rows do not keep more busy. The choice depends on the dimension alone: so does
  // the order of sums.
  const int64_t simdgroups = std::clamp<int64_t>((op.dim + 255) / 256, 1, 32);
  encoder.use(context.activation == DType::f16 ? "norm_f16" : "norm_bf16",
              {Constant::b(kNormLayer, op.kind == NormKind::layer), Constant::b(kNormWeight, bool(weight)),
               Constant::b(kNormBias, bool(bias))});
  const size_t elements = static_cast<size_t>(op.rows * op.dim);
  encoder.read(0, context.region(op.in, 4 * elements));
  if (weight) encoder.weight(1, weight);
  if (bias) encoder.weight(2, bias);
  encoder.write(3, context.region(op.out, 2 * elements));
  encoder.value(4, Params{op.eps, static_cast<uint32_t>(op.dim)});
  encoder.dispatch({static_cast<NS::UInteger>(op.rows), 1, 1}, {static_cast<NS::UInteger>(simdgroups) * 32, 1, 1});
}

void rope_table(Context& context, const StepInput& input, BufferView inv_freq, float factor, BufferView out) {
  struct Params {
    uint32_t pairs, count;
    float factor;
  };
  const uint32_t pairs = static_cast<uint32_t>(inv_freq.bytes / 4);
  const uint32_t count = static_cast<uint32_t>(input.step().tokens) * pairs;
  Encoder& encoder = context.encoder;
  encoder.use("rope_table");
  encoder.weight(0, inv_freq);
  encoder.read(1, input.positions());
  encoder.write(2, {out.buffer, out.offset, size_t{count} * 8});
  encoder.value(3, Params{pairs, count, factor});
  encoder.dispatch({groups_of(count, kThreads), 1, 1}, {kThreads, 1, 1});
}

void gather_rows(Context& context, const StepInput& input, const GatherRowsOp& op) {
  Encoder& encoder = context.encoder;
  const uint32_t dim = static_cast<uint32_t>(op.dim);
  encoder.use("gather_rows");
  encoder.read(0, context.region(op.in, static_cast<size_t>(input.step().tokens * op.dim) * 4));
  encoder.read(1, input.sample_rows());
  encoder.write(2, context.region(op.out, static_cast<size_t>(input.step().samples * op.dim) * 4));
  encoder.value(3, dim);
  encoder.dispatch({groups_of(op.dim, kThreads), static_cast<NS::UInteger>(input.step().samples), 1}, {kThreads, 1, 1});
}

void prepare_blocks(Context& context, const StepInput& input, const KvCache& cache) {
  struct Params {
    uint32_t zeros, copies, words, v_offset;
  };
  const StagedStep& step = input.step();
  const uint32_t words = static_cast<uint32_t>(cache.layout().block_bytes() / 16);
  const Params params{static_cast<uint32_t>(step.zeros), static_cast<uint32_t>(step.copies), words,
                      static_cast<uint32_t>(cache.half_bytes() / 16)};
  Encoder& encoder = context.encoder;
  for (int64_t layer = 0; layer < cache.layout().layers; ++layer) {
    encoder.use("prepare_blocks");
    encoder.update(0, cache.whole(layer));
    encoder.read(1, input.block_zeros());
    encoder.read(2, input.block_copies());
    encoder.value(3, params);
    encoder.dispatch({groups_of(words, kThreads), 2, 1}, {kThreads, 1, 1});
  }
}

}  // namespace ingot::metal
