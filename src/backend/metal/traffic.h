#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ingot {

// Bytes that kernels moved between the GPU and its memory, by what the memory is for.
struct MetalTraffic {
  struct Kernel {
    std::string name;
    uint64_t dispatches = 0, loaded = 0, stored = 0;
  };
  uint64_t weights = 0;   // loaded
  uint64_t matrices = 0;  // of these, loaded by matrix products
  uint64_t kv = 0;        // loaded
  uint64_t kv_stored = 0;
  uint64_t activations = 0;         // loaded from scratch and work memory
  uint64_t unique_activations = 0;  // the same, each byte counted once a dispatch
  uint64_t stored = 0;              // to scratch and work memory
  std::vector<Kernel> kernels;      // largest first
};

// Only the software device can count: devices made after this call do, and do nothing else of their checks. Returns
// false on a real GPU, and where a sanitizer watches the kernels.
bool count_metal_traffic();

// Since the last call.
MetalTraffic take_metal_traffic();

}  // namespace ingot
