#pragma once

#include <Metal/Metal.hpp>
#include <string>

namespace ingot::metal {

// The kernels, all in one source: kernels/common.h and the .metal files, joined by the build.
extern const char* const kKernelSource;

struct LibraryOptions {
  std::string resources;  // VLLM_METAL_PATH_RESOURCES: a folder with ingot.metallib or ingot.metal; empty: the build's
  bool bfloat = true;     // the device is to have kernels for bf16
};

// Loads the compiled library first, then compiles the source. Throws Error(device) that names all that was tried.
NS::SharedPtr<MTL::Library> load_library(MTL::Device* device, const LibraryOptions& options);

}  // namespace ingot::metal
