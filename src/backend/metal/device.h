#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "collective/group.h"

namespace ingot {

struct MetalOptions {
  bool cuda = false;               // on an NVIDIA GPU, by softmetal
  DType activation = DType::f16;   // f16, or bf16 for models made in bf16
  std::string resources;           // VLLM_METAL_PATH_RESOURCES
  bool profile = false;            // VLLM_METAL_PROFILE
  bool capture_next_step = false;  // VLLM_METAL_CAPTURE_NEXT_STEP
  // Where choices by timing are kept; empty: nowhere. The software device has none, unless a test wants them.
  std::string tuning_folder;
  bool tunes_software = false;
  DropPages drop_pages;
  Group* group = nullptr;  // that the device is a rank of; it outlives the device. null: it is alone
  int tp = 1;              // ranks of it that share a layer
};

// An Apple GPU through Metal; on Linux the software Metal device runs the same code. Throws Error(declined) when there
// is no GPU that the kernels run on.
std::unique_ptr<Backend> make_metal_backend(const MetalOptions& options = {});

// What `ingot doctor` says about Metal here. `software`: the software device, which is never chosen by itself.
struct MetalStatus {
  bool available = false;
  bool software = false;
  std::string detail;
};
MetalStatus metal_status();
MetalStatus cuda_status();  // of the same device on an NVIDIA GPU
// Whether this build's Metal is the software device.
bool metal_is_software();

}  // namespace ingot
