#pragma once

#include <vector>

#include "model/config.h"

namespace ingot {

// GGUF's tensor of Llama 3's stretched frequencies; part of the configuration, never a weight.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";

// Inverse frequency of each rotating pair, scaling applied: [rope_dims / 2]. Computed in double and rounded once.
std::vector<float> rope_inv_freq(const ModelConfig& config);
// Those of the layers with a rotary base of their own; never scaled.
std::vector<float> local_rope_inv_freq(const ModelConfig& config);

// What cos and sin are multiplied with; 1 but for yarn.
float rope_attention_factor(const ModelConfig& config);

}  // namespace ingot
