#pragma once

#include <Metal/Metal.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace ingot::metal {

// The kernels, all in one source: kernels/common.h and the .metal files, joined by the build. The last of them does
// nothing: its name, kKernelStamp, has the hash of all the others, and tells whether a library was compiled from these.
extern const char* const kKernelSource;
extern const char* const kKernelStamp;

struct LibraryOptions {
  std::string resources;  // VLLM_METAL_PATH_RESOURCES: a folder with ingot.metallib or ingot.metal; empty: our own
  std::filesystem::path folder;  // of the program; empty: nothing compiled ahead is looked for
  bool bfloat = true;            // the device is to have kernels for bf16
};

// Where a library that was compiled ahead lies, the first choice first: beside the program or the Python module; beside
// the module, for the program in its folder bin; where `cmake --install` and the build put it.
std::vector<std::filesystem::path> library_places(const std::filesystem::path& folder);

struct KernelLibrary {
  NS::SharedPtr<MTL::Library> library;
  std::string from;  // for people: a path, or that it was compiled
};

// What was compiled ahead from the same source, or else that source, compiled now. A library of other kernels is left
// alone, and said to be on stderr. What VLLM_METAL_PATH_RESOURCES has is taken as it is. Throws Error(device) that
// names all that was tried.
KernelLibrary load_library(MTL::Device* device, const LibraryOptions& options);

}  // namespace ingot::metal
