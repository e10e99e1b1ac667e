#include "backend/metal/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ingot::metal {
namespace {

// Function constants of kernels/norm.metal.
enum : uint16_t { kNormLayer = 0, kNormWeight = 1, kNormBias = 2, kNormAdd = 3 };

constexpr int64_t kThreads = 256;
constexpr int64_t kMaxHeadSize = 256;
constexpr int64_t kMaxExperts = 512, kMaxExpertsPerToken = 32;  // as in kernels/experts.metal

NS::UInteger groups_of(int64_t n, int64_t size) { return static_cast<NS::UInteger>((n + size - 1) / size); }

}  // namespace

std::optional<std::string> decline_model(const ModelConfig& config, const KvLayout& kv, bool bfloat) {
  if (config.head_size < 8 || config.head_size % 8 != 0 || config.head_size > kMaxHeadSize)
    return fmt::format("head size {}: the Metal kernels run multiples of 8 up to {}", config.head_size, kMaxHeadSize);
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0)
    return fmt::format("{} query heads do not divide among {} KV heads", config.heads, config.kv_heads);
  if (config.rope_dims % 2 != 0 || config.rope_dims > config.head_size)
    return fmt::format("{} rotary dims of a head of {}: expected an even number, at most the head size",
                       config.rope_dims, config.head_size);
  if (kv.dtype == KvType::bf16 && !bfloat) return "a KV cache of bf16 needs macOS 14 or newer";
  if (kv.block_size < 8 || kv.block_size % 8 != 0)
    return fmt::format("block size {}: the Metal kernels run multiples of 8", kv.block_size);
  if (config.experts > kMaxExperts || config.experts_per_token > std::min(config.experts, kMaxExpertsPerToken))
    return fmt::format("{} of {} experts a token: the Metal kernels run up to {} of {}", config.experts_per_token,
                       config.experts, kMaxExpertsPerToken, kMaxExperts);
  return std::nullopt;
}

void norm(Context& context, const NormOp& op, BufferView weight, BufferView bias) {
  struct Params {
    float eps;
    uint32_t dim;
  };
  Encoder& encoder = context.encoder;
  // Two vectors of four a thread: short rows do not keep more busy. The choice depends on the dimension alone: so does
  // the order of sums.
  const int64_t simdgroups = std::clamp<int64_t>((op.dim + 255) / 256, 1, 32);
  const char* kernel = op.accumulate ? "norm_f32" : context.activation == DType::f16 ? "norm_f16" : "norm_bf16";
  encoder.use(kernel, {Constant::b(kNormLayer, op.kind == NormKind::layer), Constant::b(kNormWeight, bool(weight)),
                       Constant::b(kNormBias, bool(bias)), Constant::b(kNormAdd, op.accumulate)});
  const size_t elements = static_cast<size_t>(op.rows * op.dim);
  encoder.read(0, context.region(op.in, 4 * elements));
  if (weight) encoder.weight(1, weight);
  if (bias) encoder.weight(2, bias);
  if (op.accumulate)
    encoder.update(3, context.region(op.out, 4 * elements));
  else
    encoder.write(3, context.region(op.out, 2 * elements));
  encoder.value(4, Params{op.eps, static_cast<uint32_t>(op.dim)});
  encoder.dispatch({static_cast<NS::UInteger>(op.rows), 1, 1}, {static_cast<NS::UInteger>(simdgroups) * 32, 1, 1});
}

void rope_table(Context& context, const StepView& input, BufferView inv_freq, float factor, BufferView out) {
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

void gather_rows(Context& context, const StepView& input, const GatherRowsOp& op) {
  Encoder& encoder = context.encoder;
  const uint32_t dim = static_cast<uint32_t>(op.dim);
  encoder.use("gather_rows");
  encoder.read(0, context.region(op.in, static_cast<size_t>(input.step().tokens * op.dim) * 4));
  encoder.read(1, input.sample_rows());
  encoder.write(2, context.region(op.out, static_cast<size_t>(input.step().samples * op.dim) * 4));
  encoder.value(3, dim);
  encoder.dispatch({groups_of(op.dim, kThreads), static_cast<NS::UInteger>(input.step().samples), 1}, {kThreads, 1, 1});
}

void copy_outputs(MTL::BlitCommandEncoder* blit, const OutputLayout& out, MTL::Buffer* from, MTL::Buffer* to,
                  size_t rows, size_t logits_rows) {
  const auto copy = [&](size_t offset, size_t bytes) {
    bytes = std::min(bytes, out.bytes - offset);
    if (bytes > 0) blit->copyFromBuffer(from, offset, to, offset, bytes);
  };
  copy(out.tokens, rows * 4);
  copy(out.logprobs, rows * 4);
  copy(out.ranks, rows * 4);
  copy(out.top_ids, rows * static_cast<size_t>(out.max_top) * 4);
  copy(out.top_values, rows * static_cast<size_t>(out.max_top) * 4);
  copy(out.logits, logits_rows * static_cast<size_t>(out.vocab) * 4);
}

void prepare_blocks(Context& context, const StepView& input, const KvCache& cache) {
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
