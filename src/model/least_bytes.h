#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "model/config.h"

namespace ingot {

// What a decode step of `rows` rows, each sampled greedily, must load of activations at least: every operand of every
// operation of the decoder once. Weights and KV cache are beside this.
uint64_t least_activation_bytes(const ModelConfig& config, DType activation, int64_t rows);

}  // namespace ingot
