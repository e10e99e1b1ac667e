// Kernels for the instructions of Apple GPUs, where there is none: with Options::agx the device leaves the source of
// every kernel that is asked for in a folder, and what its dispatches ask for; it runs nothing.
#pragma once

#include <Metal/Metal.hpp>

namespace softmetal {

// A dispatch that is planned and not encoded; on other devices nothing.
void note_dispatch(const MTL::ComputePipelineState* pipeline, MTL::Size threads, size_t threadgroup_bytes);

}  // namespace softmetal
