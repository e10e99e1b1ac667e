#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ingot {
namespace {

// Llama 3: long wavelengths are divided by the factor, short ones kept, those between blended.
double scale_llama3(const RopeScaling& s, double inv_freq) {
  const double context = static_cast<double>(s.original_max_position);
  const double wavelength = 2 * std::numbers::pi / inv_freq;
  if (wavelength < context / s.high_freq_factor) return inv_freq;
  if (wavelength > context / s.low_freq_factor) return inv_freq / s.factor;
  const double keep = (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - keep) * inv_freq / s.factor + keep * inv_freq;
}

// YaRN: pairs below `low` keep their frequency, those above `high` are divided by the factor, a linear ramp between.
struct YarnRamp {
  double low, high;
};

YarnRamp yarn_ramp(const ModelConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  const double dims = static_cast<double>(config.rope_dims);
  // The pair that turns `rotations` times over the original context.
  const auto pair_of = [&](double rotations) {
    const double context = static_cast<double>(s.original_max_position);
    return dims * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(config.rope_theta));
  };
  YarnRamp ramp{pair_of(s.beta_fast), pair_of(s.beta_slow)};
  if (s.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, dims - 1)};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

double scale_yarn(const RopeScaling& s, const YarnRamp& ramp, double inv_freq, double pair) {
  const double stretched = std::clamp((pair - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
  return inv_freq / s.factor * stretched + inv_freq * (1 - stretched);
}

}  // namespace

std::vector<float> rope_inv_freq(const ModelConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  const int64_t pairs = config.rope_dims / 2;
  std::vector<float> table(static_cast<size_t>(pairs));
  const YarnRamp ramp = s.kind == RopeScaling::Kind::yarn ? yarn_ramp(config) : YarnRamp{};
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.rope_dims);
    double inv_freq = 1 / std::pow(config.rope_theta, exponent);
    if (!s.factors.empty()) inv_freq /= static_cast<double>(s.factors[static_cast<size_t>(i)]);
    switch (s.kind) {
      case RopeScaling::Kind::none: break;
      case RopeScaling::Kind::linear: inv_freq /= s.factor; break;
      case RopeScaling::Kind::llama3: inv_freq = scale_llama3(s, inv_freq); break;
      case RopeScaling::Kind::yarn: inv_freq = scale_yarn(s, ramp, inv_freq, static_cast<double>(i)); break;
    }
    table[static_cast<size_t>(i)] = static_cast<float>(inv_freq);
  }
  return table;
}

std::vector<float> local_rope_inv_freq(const ModelConfig& config) {
  ModelConfig local = config;
  local.rope_theta = config.local_rope_theta;
  local.rope_scaling = {};
  return rope_inv_freq(local);
}

float rope_attention_factor(const ModelConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  if (s.attention_factor != 0) return static_cast<float>(s.attention_factor);
  if (s.kind != RopeScaling::Kind::yarn || s.factor <= 1) return 1.0f;
  const auto magnitude = [&](double mscale) { return 0.1 * mscale * std::log(s.factor) + 1; };
  if (s.mscale != 0 && s.mscale_all_dim != 0)
    return static_cast<float>(magnitude(s.mscale) / magnitude(s.mscale_all_dim));
  return static_cast<float>(magnitude(1));
}

}  // namespace ingot
