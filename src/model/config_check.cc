#include <cmath>

#include "core/error.h"
#include "model/config_settings.h"

namespace ingot {
namespace {

// Ranges of the settings are far above any model, far below anything that could overflow a size computed from two or
// three of them.
constexpr int64_t kMostPositions = (int64_t{1} << 31) - 1;

void check_range(const ConfigNames& names, const std::string& key, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw_error(ErrorKind::bad_file, "{}: {} must be from {} to {}, got {}", names.where, key, low, high, value);
}

void check_positive(const ConfigNames& names, const std::string& key, double value, double high) {
  if (!std::isfinite(value) || value <= 0 || value > high)
    throw_error(ErrorKind::bad_file, "{}: {} must be above 0 and at most {:g}, got {:g}", names.where, key, high,
                value);
}

void check_factor(const ConfigNames& names, const std::string& what, double value) {
  if (!std::isfinite(value) || value < 0 || value > 1e3)
    throw_error(ErrorKind::bad_file, "{}: {} must be from 0 to 1000, got {:g}", names.where, what, value);
}

void check_rope(const ModelConfig& config, const ConfigNames& names) {
  check_positive(names, names.rope_theta, config.rope_theta, 1e15);
  check_range(names, names.rope_dims, config.rope_dims, 2, config.head_size);
  if (config.rope_dims % 2 != 0)
    throw_error(ErrorKind::bad_file, "{}: {} must be even, got {}", names.where, names.rope_dims, config.rope_dims);
  const RopeScaling& scaling = config.rope_scaling;
  check_factor(names, "the attention factor of " + names.rope_factor, scaling.attention_factor);
  if (!scaling.factors.empty() && scaling.factors.size() != static_cast<size_t>(config.rope_dims / 2))
    throw_error(ErrorKind::bad_file, "{}: {} has {} rotary factors, {} / 2 = {} are needed", names.where,
                names.rope_factor, scaling.factors.size(), names.rope_dims, config.rope_dims / 2);
  for (float factor : scaling.factors) check_positive(names, "a rotary factor", factor, 1e15);
  if (scaling.kind == RopeScaling::Kind::none) return;

  check_positive(names, names.rope_factor, scaling.factor, 1e6);
  if (scaling.kind == RopeScaling::Kind::linear) return;
  check_range(names, names.rope_original, scaling.original_max_position, 1, kMostPositions);
  if (scaling.kind == RopeScaling::Kind::llama3) {
    check_positive(names, "low_freq_factor", scaling.low_freq_factor, 1e6);
    check_positive(names, "high_freq_factor", scaling.high_freq_factor, 1e6);
    if (scaling.high_freq_factor <= scaling.low_freq_factor)
      throw_error(ErrorKind::bad_file, "{}: high_freq_factor {:g} must be above low_freq_factor {:g}", names.where,
                  scaling.high_freq_factor, scaling.low_freq_factor);
  } else {
    check_positive(names, "beta_fast", scaling.beta_fast, 1e6);
    check_positive(names, "beta_slow", scaling.beta_slow, 1e6);
    if (config.rope_theta <= 1)
      throw_error(ErrorKind::bad_file, "{}: {} must be above 1 for yarn, got {:g}", names.where, names.rope_theta,
                  config.rope_theta);
    for (double mscale : {scaling.mscale, scaling.mscale_all_dim})
      check_factor(names, "mscale and mscale_all_dim", mscale);
  }
}

void check_setting(const Setting& setting, const ModelConfig& config, const ConfigNames& names) {
  if (setting.*names.kind == nullptr) return;
  if (const auto* size = std::get_if<int64_t ModelConfig::*>(&setting.member))
    check_range(names, names.of(setting), config.**size, 1, static_cast<int64_t>(setting.most));
  else if (const auto* number = std::get_if<float ModelConfig::*>(&setting.member))
    check_positive(names, names.of(setting), config.**number, setting.most);
}

}  // namespace

std::vector<Setting> settings_of(const Family& family) {
  std::vector<Setting> settings = {
      kLayers,
      {&ModelConfig::max_position, "max_position_embeddings", "context_length", kMostPositions},
      kHidden,
      {&ModelConfig::ffn, "intermediate_size", "feed_forward_length", 1 << 22},
      kHeads,
      kKvHeads,
      {&ModelConfig::vocab, "vocab_size", "vocab_size", 1 << 24},
      {&ModelConfig::norm_eps, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1}};
  settings.insert(settings.end(), family.settings.begin(), family.settings.end());
  return settings;
}

void settle_sizes(std::optional<int64_t> head_size, const ConfigNames& names, ModelConfig& c) {
  check_setting(kLayers, c, names);
  c.per_layer.assign(static_cast<size_t>(c.layers),
                     {.rope = c.learned_positions ? LayerConfig::Rope::none : LayerConfig::Rope::main});
  if (head_size) c.head_size = *head_size;
  if (c.head_size != 0 || head_size) return;
  if (c.heads < 1 || c.hidden % c.heads != 0)
    throw_error(ErrorKind::bad_file, "{}: {} = {} is not a multiple of {} = {}", names.where, names.of(kHidden),
                c.hidden, names.of(kHeads), c.heads);
  c.head_size = c.hidden / c.heads;
}

void check_config(const ModelConfig& c, const ConfigNames& names) {
  for (const Setting& setting : settings_of(names.family)) check_setting(setting, c, names);
  check_setting(kHeadSize, c, names);
  if (c.heads % c.kv_heads != 0)
    throw_error(ErrorKind::bad_file, "{}: {} = {} is not a multiple of {} = {}", names.where, names.of(kHeads), c.heads,
                names.of(kKvHeads), c.kv_heads);
  if (c.experts > 0) check_range(names, names.of(kExpertsPerToken), c.experts_per_token, 1, c.experts);
  check_range(names, names.sliding_window, c.sliding_window, 0, kMostPositions);
  if (!c.learned_positions) check_rope(c, names);
  if (c.local_rope_theta != 0) check_positive(names, "the rotary base of local layers", c.local_rope_theta, 1e15);
  if (c.bos_id != -1) check_range(names, names.bos, c.bos_id, 0, c.vocab - 1);
  for (int32_t id : c.eos_ids) check_range(names, names.eos, id, 0, c.vocab - 1);
}

}  // namespace ingot
