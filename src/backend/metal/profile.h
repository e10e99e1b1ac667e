#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/profile.h"

namespace ingot::metal {

// VLLM_METAL_PROFILE: GPU time by kernel and what it is for. Times of single kernels exist for command buffers only, so
// every dispatch gets its own: steps are slower and the contract of one submission a step does not hold while
// profiling.
struct TimedDispatch {
  std::string kernel;  // behind its role, where it has one: "qkv linear_half"
  NS::SharedPtr<MTL::CommandBuffer> commands;
  uint64_t weight_bytes = 0;
};
// The dispatches of a step; all of them have completed.
void add_step(Profile& profile, const std::vector<TimedDispatch>& dispatches);

// VLLM_METAL_CAPTURE_NEXT_STEP: a trace of what the queue does from now on, for Xcode. Throws where none can be taken.
void start_capture(MTL::CommandQueue* queue);

}  // namespace ingot::metal
