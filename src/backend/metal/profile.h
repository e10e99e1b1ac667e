#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ingot::metal {

// VLLM_METAL_PROFILE: GPU time by kernel and what it is for. Times of single kernels exist for command buffers only, so
// every dispatch gets its own: steps are slower and the contract of one submission a step does not hold while
// profiling.
class Profile {
 public:
  struct Timed {
    std::string kernel;  // behind its role, where it has one: "qkv linear_half"
    NS::SharedPtr<MTL::CommandBuffer> commands;
    uint64_t weight_bytes = 0;
  };

  // All of them have completed.
  void add(const std::vector<Timed>& dispatches);
  // Kernels by total time: dispatches, milliseconds, share, weight bytes and GB/s. Empty when nothing ran.
  std::string table() const;

 private:
  struct Line {
    uint64_t dispatches = 0, weight_bytes = 0;
    double seconds = 0;
  };
  std::map<std::string, Line> lines_;
  uint64_t steps_ = 0;
};

// VLLM_METAL_CAPTURE_NEXT_STEP: a trace of what the queue does from now on, for Xcode. Throws where none can be taken.
void start_capture(MTL::CommandQueue* queue);

}  // namespace ingot::metal
