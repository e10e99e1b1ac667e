#include <cmath>

#include "core/error.h"
#include "model/config_read.h"

namespace ingot {
namespace {

// Far above any model, far below anything that could overflow a size computed from two or three of them.
constexpr int64_t kMaxHidden = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 12;
constexpr int64_t kMaxHeads = 1 << 14;
constexpr int64_t kMaxHeadSize = 1 << 12;
constexpr int64_t kMaxFfn = 1 << 22;
constexpr int64_t kMaxExperts = 1 << 12;
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxPosition = (int64_t{1} << 31) - 1;

void check_range(const ConfigKeys& keys, const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw_error(ErrorKind::bad_file, "{}: {} must be from {} to {}, got {}", keys.where, key, low, high, value);
}

void check_positive(const ConfigKeys& keys, const std::string& key, double value, double high) {
  if (!std::isfinite(value) || value <= 0 || value > high)
    throw_error(ErrorKind::bad_file, "{}: {} must be above 0 and at most {:g}, got {:g}", keys.where, key, high, value);
}

void check_experts(const ModelConfig& config, const ConfigKeys& keys) {
  check_range(keys, keys.experts, config.experts, 1, kMaxExperts);
  check_range(keys, keys.experts_per_token, config.experts_per_token, 1, config.experts);
  check_range(keys, keys.expert_ffn, config.expert_ffn, 1, kMaxFfn);
}

void check_rope(const ModelConfig& config, const ConfigKeys& keys) {
  check_positive(keys, keys.rope_theta, config.rope_theta, 1e15);
  check_range(keys, keys.rope_dims, config.rope_dims, 2, config.head_size);
  if (config.rope_dims % 2 != 0)
    throw_error(ErrorKind::bad_file, "{}: {} must be even, got {}", keys.where, keys.rope_dims, config.rope_dims);
  const RopeScaling& scaling = config.rope_scaling;
  if (!std::isfinite(scaling.attention_factor) || scaling.attention_factor < 0 || scaling.attention_factor > 1e3)
    throw_error(ErrorKind::bad_file, "{}: the attention factor of {} must be from 0 to 1000, got {:g}", keys.where,
                keys.rope_factor, scaling.attention_factor);
  if (!scaling.factors.empty() && scaling.factors.size() != static_cast<size_t>(config.rope_dims / 2))
    throw_error(ErrorKind::bad_file, "{}: {} has {} rotary factors, {} / 2 = {} are needed", keys.where,
                keys.rope_factor, scaling.factors.size(), keys.rope_dims, config.rope_dims / 2);
  for (float factor : scaling.factors) check_positive(keys, "a rotary factor", factor, 1e15);
  if (scaling.kind == RopeScaling::Kind::none) return;

  check_positive(keys, keys.rope_factor, scaling.factor, 1e6);
  if (scaling.kind == RopeScaling::Kind::linear) return;
  check_range(keys, keys.rope_original, scaling.original_max_position, 1, kMaxPosition);
  if (scaling.kind == RopeScaling::Kind::llama3) {
    check_positive(keys, "low_freq_factor", scaling.low_freq_factor, 1e6);
    check_positive(keys, "high_freq_factor", scaling.high_freq_factor, 1e6);
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      throw_error(ErrorKind::bad_file, "{}: high_freq_factor {:g} must be above low_freq_factor {:g}", keys.where,
                  scaling.high_freq_factor, scaling.low_freq_factor);
  } else {
    check_positive(keys, "beta_fast", scaling.beta_fast, 1e6);
    check_positive(keys, "beta_slow", scaling.beta_slow, 1e6);
    if (config.rope_theta <= 1)
      throw_error(ErrorKind::bad_file, "{}: {} must be above 1 for yarn, got {:g}", keys.where, keys.rope_theta,
                  config.rope_theta);
    for (double mscale : {scaling.mscale, scaling.mscale_all_dim})
      if (!std::isfinite(mscale) || mscale < 0 || mscale > 1e3)
        throw_error(ErrorKind::bad_file, "{}: mscale and mscale_all_dim must be from 0 to 1000, got {:g}", keys.where,
                    mscale);
  }
}

}  // namespace

void check_layers(const ModelConfig& config, const ConfigKeys& keys) {
  check_range(keys, keys.layers, config.layers, 1, kMaxLayers);
}

void check_config(const ModelConfig& config, const ConfigKeys& keys) {
  check_range(keys, keys.hidden, config.hidden, 1, kMaxHidden);
  check_layers(config, keys);
  check_range(keys, keys.heads, config.heads, 1, kMaxHeads);
  check_range(keys, keys.kv_heads, config.kv_heads, 1, kMaxHeads);
  if (config.heads % config.kv_heads != 0)
    throw_error(ErrorKind::bad_file, "{}: {} = {} is not a multiple of {} = {}", keys.where, keys.heads, config.heads,
                keys.kv_heads, config.kv_heads);
  check_range(keys, keys.head_size, config.head_size, 1, kMaxHeadSize);
  check_range(keys, keys.ffn, config.ffn, 1, kMaxFfn);
  check_range(keys, keys.vocab, config.vocab, 1, kMaxVocab);
  check_range(keys, keys.max_position, config.max_position, 1, kMaxPosition);
  check_range(keys, keys.sliding_window, config.sliding_window, 0, kMaxPosition);
  check_positive(keys, keys.norm_eps, config.norm_eps, 1.0);
  if (config.learned_positions) {
    if (config.rope_dims != 0) check_rope(config, keys);
  } else {
    check_rope(config, keys);
  }
  if (config.local_rope_theta != 0)
    check_positive(keys, "the rotary base of local layers", config.local_rope_theta, 1e15);
  if (!std::isfinite(config.attention_scale) || config.attention_scale < 0)
    throw_error(ErrorKind::bad_file, "{}: query_pre_attn_scalar must be above 0", keys.where);
  if (config.experts != 0) check_experts(config, keys);
  if (config.bos_id != -1) check_range(keys, keys.bos, config.bos_id, 0, config.vocab - 1);
  for (int32_t id : config.eos_ids) check_range(keys, keys.eos, id, 0, config.vocab - 1);
}

}  // namespace ingot
