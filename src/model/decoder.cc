#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/rope.h"

namespace ingot {

DecoderScratch DecoderScratch::plan(const ModelConfig& c, int64_t max_tokens, int64_t max_sample_rows,
                                    DType activation) {
  DecoderScratch s;
  const auto place = [&s](int64_t rows, int64_t width, DType type) {
    const size_t bytes = dtype_bytes(type, static_cast<size_t>(rows * width));
    const Region region{s.bytes, bytes};
    s.bytes += (bytes + 63) / 64 * 64;
    return region;
  };
  const int64_t q = c.heads * c.head_size;
  const int64_t qkv = q + 2 * c.kv_heads * c.head_size;
  s.residual = place(max_tokens, c.hidden, DType::f32);
  s.sampled = place(max_sample_rows, c.hidden, DType::f32);
  s.rope = place(max_tokens, c.rope_dims, DType::f32);
  s.narrow = place(max_tokens, std::max(c.hidden, q), activation);
  s.wide = place(max_tokens, std::max(qkv, c.ffn), activation);
  s.logits = place(max_sample_rows, c.vocab, DType::f32);
  return s;
}

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, const DecoderScratch& scratch)
    : config_(config), weights_(std::move(weights)), scratch_(scratch), rope_factor_(rope_attention_factor(config)) {
  shape_ = {.heads = config.heads,
            .kv_heads = config.kv_heads,
            .head_size = config.head_size,
            .scale = 1.0f / std::sqrt(static_cast<float>(config.head_size)),
            .window = config.sliding_window,
            .rope_dims = config.rope_dims};
}

void Decoder::encode(const StagedStep& step, Backend& device) const {
  device.embed({.table = weights_.embedding, .position_table = {}, .scale = 1.0f, .out = scratch_.residual});
  device.rope_table({.inv_freq = weights_.inv_freq, .factor = rope_factor_, .out = scratch_.rope});
  const int64_t last = config_.layers - 1;
  for (int64_t layer = 0; layer < last; ++layer) {
    attention(step, layer, device);
    mlp(weights_.layers[layer], step.tokens, step.decode_rows, scratch_.residual, device);
  }
  attention(step, last, device);
  if (step.samples == 0) return;

  // From here on only the rows that produce output matter.
  Region rows = scratch_.residual;
  if (step.samples < step.tokens) {
    device.gather_rows({.dim = config_.hidden, .in = scratch_.residual, .out = scratch_.sampled});
    rows = scratch_.sampled;
  }
  mlp(weights_.layers[last], step.samples, step.samples, rows, device);
  device.norm({.kind = config_.norm,
               .eps = config_.norm_eps,
               .rows = step.samples,
               .dim = config_.hidden,
               .in = rows,
               .weight = weights_.final_norm,
               .bias = {},
               .out = scratch_.narrow});
  device.linear({.rows = step.samples,
                 .in = scratch_.narrow,
                 .weight = weights_.head,
                 .bias = {},
                 .out = scratch_.logits,
                 .accumulate = false,
                 .f32_out = true,
                 .decode_rows = step.samples});
  device.sample({.logits = scratch_.logits, .vocab = config_.vocab});
}

void Decoder::attention(const StagedStep& step, int64_t layer, Backend& device) const {
  const LayerWeights& w = weights_.layers[layer];
  device.norm({.kind = config_.norm,
               .eps = config_.norm_eps,
               .rows = step.tokens,
               .dim = config_.hidden,
               .in = scratch_.residual,
               .weight = w.attention_norm,
               .bias = {},
               .out = scratch_.narrow});
  device.linear({.rows = step.tokens,
                 .in = scratch_.narrow,
                 .weight = w.qkv,
                 .bias = w.qkv_bias,
                 .out = scratch_.wide,
                 .decode_rows = step.decode_rows});
  if (step.decode_rows > 0)
    device.decode_attention(
        {.layer = layer, .shape = shape_, .qkv = scratch_.wide, .rope = scratch_.rope, .out = scratch_.narrow});
  if (step.decode_rows < step.tokens) {
    device.prefill_write({.layer = layer, .shape = shape_, .qkv = scratch_.wide, .rope = scratch_.rope});
    device.prefill_attention({.layer = layer, .shape = shape_, .qkv = scratch_.wide, .out = scratch_.narrow});
  }
  device.linear({.rows = step.tokens,
                 .in = scratch_.narrow,
                 .weight = w.output,
                 .bias = w.output_bias,
                 .out = scratch_.residual,
                 .accumulate = true,
                 .decode_rows = step.decode_rows});
}

void Decoder::mlp(const LayerWeights& w, int64_t rows, int64_t decode_rows, Region residual, Backend& device) const {
  device.norm({.kind = config_.norm,
               .eps = config_.norm_eps,
               .rows = rows,
               .dim = config_.hidden,
               .in = residual,
               .weight = w.mlp_norm,
               .bias = {},
               .out = scratch_.narrow});
  device.gated_linear({.rows = rows,
                       .activation = config_.activation,
                       .in = scratch_.narrow,
                       .gate = w.gate,
                       .up = w.up,
                       .gate_bias = w.gate_bias,
                       .up_bias = w.up_bias,
                       .out = scratch_.wide,
                       .decode_rows = decode_rows});
  device.linear({.rows = rows,
                 .in = scratch_.wide,
                 .weight = w.down,
                 .bias = w.down_bias,
                 .out = residual,
                 .accumulate = true,
                 .decode_rows = decode_rows});
}

}  // namespace ingot
