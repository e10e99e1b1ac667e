#include "backend/metal/host_hooks.h"

#include <dlfcn.h>

#include "backend/metal/traffic.h"
#include "core/error.h"

namespace ingot::metal::host {

bool is_software() { return false; }
bool has_bfloat() {
  if (__builtin_available(macOS 14.0, *)) return true;
  return false;
}
bool has_residency_sets() {
  if (__builtin_available(macOS 15.0, *)) return true;
  return false;
}

std::filesystem::path own_folder() {
  Dl_info image{};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &image) == 0 || image.dli_fname == nullptr) return {};
  std::error_code none;
  return std::filesystem::weakly_canonical(image.dli_fname, none).parent_path();
}

MTL::Device* new_cuda_device() { throw_error(ErrorKind::declined, "this build has no CUDA device"); }

std::string driver_version(bool) {
  return NS::ProcessInfo::processInfo()->operatingSystemVersionString()->utf8String();
}

void begin_step() {}
void begin_encode() {}
void end_encode() {}
void end_step() {}

void host_access(BufferView, bool) {}
void encode_call(MTL::CommandBuffer*, std::function<void(void*)>) {
  throw_error(ErrorKind::internal, "gpu: Metal has no stream that other libraries know");
}
void run_beside(MTL::BlitCommandEncoder*) {}  // they do by themselves
void note_dispatch(const MTL::ComputePipelineState*, MTL::Size, size_t) {}

unsigned warpgroups(const MTL::Device*) { return 0; }
std::string gemm_name(const MTL::Device*) { return ""; }
void prepare_gemm(MTL::Device*, const GemmProduct&) {}
void encode_gemm(MTL::ComputeCommandEncoder*, const GemmProduct&, BufferView, BufferView, BufferView) {}

}  // namespace ingot::metal::host

namespace ingot {

bool count_metal_traffic() { return false; }
MetalTraffic take_metal_traffic() { return {}; }

}  // namespace ingot
