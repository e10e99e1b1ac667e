#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <string>

namespace ingot::metal {

// The GPU and the one queue everything goes through.
struct Gpu {
  NS::SharedPtr<MTL::Device> device;
  NS::SharedPtr<MTL::CommandQueue> queue;
  std::string name;           // "Apple M3 Ultra"
  int family = 0;             // newest Apple family: 7 is M1, 8 M2, 9 M3 and M4, 10 M5; or kNvidiaFamily
  bool software = false;      // the software device of Linux, on the CPU
  bool bfloat = false;        // kernels may use bfloat
  uint64_t memory_bytes = 0;  // what a model may take: recommendedMaxWorkingSetSize
};

// `cuda`: an NVIDIA GPU, which runs the same kernels through the software device. Throws Error(declined) with the
// reason when there is no GPU this engine can use.
Gpu open_gpu(bool cuda = false);

}  // namespace ingot::metal
