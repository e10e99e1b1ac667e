#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "ingot/engine.h"
#include "ingot/step.h"
#include "step/staged.h"

namespace ingot {

// The rows of an embedding that the host has: of each token of a step one is staged.
struct EmbeddedRows {
  int64_t width = 0;
  std::function<void(int32_t token, int32_t position, float* out)> read;
};

// Copies a validated step into shared memory and says where everything lies. Throws StepError when the step's lists
// (masks, histories, token lists) do not fit; nothing but `memory` is written.
StagedStep stage_step(const Step& step, int64_t vocab, int64_t block_size, int ring, std::span<std::byte> memory,
                      const EmbeddedRows* embedded = nullptr);

// Bytes of shared memory that the largest step within the limits takes.
size_t stage_bytes(const EngineLimits& limits);

}  // namespace ingot
