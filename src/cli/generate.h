#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ingot/engine.h"

namespace ingot::cli {

struct Generation {
  std::vector<int32_t> token_ids;
  std::string finish_reason;  // "stop" or "length"
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

// Completes one prompt on an idle engine: prefill in chunks of the step limit, then a token a step until a token of
// `stop_ids` or `max_tokens`. `on_token` is called with each new token except the one that stops.
Generation generate(Engine& engine, std::span<const int32_t> prompt, const SamplingParams& params, int64_t max_tokens,
                    std::span<const int32_t> stop_ids, const std::function<void(int32_t)>& on_token);

}  // namespace ingot::cli
