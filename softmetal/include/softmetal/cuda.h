// The Metal API on an NVIDIA GPU: the same kernels, taken to PTX by the same front end.
#pragma once

#include <string>
#include <vector>

namespace MTL {
class Device;
}

namespace softmetal {

// A new device on the first NVIDIA GPU, to be released by the caller; nullptr and the reason where there is none. With
// Options::compile_only it needs no GPU, compiles what it is asked for and runs nothing.
MTL::Device* create_cuda_device(std::string* reason);

// Multiprocessors of the device whose simdgroups multiply four together (compute capability 9.0); 0: they do not.
unsigned warpgroups(const MTL::Device* device);

// What a compile-only device compiled since the last call.
struct Compiled {
  std::string kernel;
  std::string constants;  // "LINEAR_ROWS=8u LINEAR_LANES=32u"
  std::string report;     // what ptxas said: registers, stack, spills; empty without ptxas
};
std::vector<Compiled> take_compiled();

}  // namespace softmetal
