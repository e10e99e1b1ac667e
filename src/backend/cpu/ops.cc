#include "backend/cpu/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ingot::cpu {

std::optional<std::string> decline_model(const ModelConfig& config, const KvLayout& kv) {
  if (config.head_size < 8 || config.head_size % 8 != 0 || config.head_size > 512)
    return fmt::format("head size {}: the CPU runs multiples of 8 up to 512", config.head_size);
  if (config.kv_heads < 1 || config.heads % config.kv_heads != 0)
    return fmt::format("{} query heads do not divide among {} KV heads", config.heads, config.kv_heads);
  if (config.heads / config.kv_heads > kMaxAttentionRows)
    return fmt::format("{} query heads a KV head: the CPU runs at most {}", config.heads / config.kv_heads,
                       kMaxAttentionRows);
  if (config.rope_dims % 2 != 0 || config.rope_dims > config.head_size)
    return fmt::format("{} rotary dims of a head of {}: expected an even number, at most the head size",
                       config.rope_dims, config.head_size);
  if (kv.block_size < 8 || kv.block_size % 8 != 0)
    return fmt::format("block size {}: the CPU runs multiples of 8", kv.block_size);
  return std::nullopt;
}

void prepare_step(const StepView& view, KvCache* cache, Sampler* sampler, Worker& worker) {
  const StagedStep& step = view.step();
  if (step.resets > 0 && sampler != nullptr && worker.index() == 0) sampler->reset_slots(view);
  if (step.zeros > 0 || step.copies > 0) {
    // Copies may build on each other, so a layer's are done in order; layers are independent.
    worker.share(cache->layout().layers, [&](int64_t layer) {
      for (int32_t i = 0; i < step.zeros; ++i) cache->zero_block(layer, view.block_zeros()[i]);
      for (int32_t i = 0; i < step.copies; ++i)
        cache->copy_block(layer, view.block_copies()[2 * i], view.block_copies()[2 * i + 1]);
    });
  }
}

void embed(const EmbedCall& call, const StepView& view, const Sampler* sampler, uint64_t step, Worker& worker) {
  const int64_t hidden = call.table->cols();
  worker.share(view.step().tokens, [&](int64_t row) {
    int64_t token = view.token_ids()[row];
    if (token < 0) token = sampler != nullptr ? sampler->previous_token(step, -1 - token) : 0;
    float* out = call.out + row * hidden;
    unpack_row(*call.table, std::min(token, call.table->rows() - 1), out);
    if (call.scale != 1.0f)
      for (int64_t i = 0; i < hidden; ++i) out[i] *= call.scale;
    if (call.positions != nullptr) {
      float* extra = call.scratch + worker.index() * hidden;
      unpack_row(*call.positions, std::min<int64_t>(view.positions()[row], call.positions->rows() - 1), extra);
      for (int64_t i = 0; i < hidden; ++i) out[i] += extra[i];
    }
  });
}

void rope_table(const RopeTableCall& call, const StepView& view, Worker& worker) {
  constexpr int64_t kRows = 16;
  const int64_t tokens = view.step().tokens;
  worker.share((tokens + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(tokens, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      float* out = call.out + row * call.pairs * 2;
      // The angle in double: a float would lose 1e-3 of a turn at position 100,000.
      for (int64_t i = 0; i < call.pairs; ++i) {
        const double angle = static_cast<double>(view.positions()[row]) * static_cast<double>(call.inv_freq[i]);
        out[2 * i] = static_cast<float>(std::cos(angle)) * call.factor;
        out[2 * i + 1] = static_cast<float>(std::sin(angle)) * call.factor;
      }
    }
  });
}

void norm(const NormCall& call, const Kernels& kernels, Worker& worker) {
  const auto run = call.kind == NormKind::rms ? kernels.rms_norm : kernels.layer_norm;
  constexpr int64_t kRows = 4;
  worker.share((call.rows + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(call.rows, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      float* out = call.out + row * call.dim;
      float* normed = call.scratch != nullptr ? call.scratch + worker.index() * call.dim : out;
      run(call.in + row * call.dim, call.weight, call.bias, call.eps, call.dim, normed);
      if (call.scratch != nullptr)
        for (int64_t i = 0; i < call.dim; ++i) out[i] += normed[i];
    }
  });
}

void gather_rows(const GatherCall& call, const StepView& view, Worker& worker) {
  worker.share(view.step().samples, [&](int64_t row) {
    std::memcpy(call.out + row * call.dim, call.in + view.sample_rows()[row] * call.dim,
                static_cast<size_t>(call.dim) * sizeof(float));
  });
}

}  // namespace ingot::cpu
