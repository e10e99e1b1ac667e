// metal-cpp wants its implementation in exactly one file.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "backend/metal/gpu.h"

#include "backend/metal/device.h"
#include "core/error.h"
#include "core/memory.h"
#ifndef __APPLE__
#include <softmetal/cuda.h>
#endif

namespace ingot::metal {
namespace {

constexpr int kOldestFamily = 7, kNewestFamily = 10;

// simdgroup_matrix needs Apple7; bfloat needs Metal 3.1, which came with macOS 14.
bool has_bfloat() {
#ifdef __APPLE__
  if (__builtin_available(macOS 14.0, *)) return true;
  return false;
#else
  return true;
#endif
}

MTL::Device* cuda_device() {
#ifdef __APPLE__
  throw_error(ErrorKind::declined, "this build has no CUDA device");
#else
  std::string reason;
  MTL::Device* device = softmetal::create_cuda_device(&reason);
  if (device == nullptr) throw_error(ErrorKind::declined, "no CUDA device: {}", reason);
  return device;
#endif
}

}  // namespace

Device open_device(bool cuda) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  Device device;
  device.gpu = NS::TransferPtr(cuda ? cuda_device() : MTL::CreateSystemDefaultDevice());
  if (!device.gpu) throw_error(ErrorKind::declined, "no Metal device: this machine has no GPU that Metal can use");
  device.name = device.gpu->name()->utf8String();
  for (int family = kOldestFamily; family <= kNewestFamily; ++family)
    if (device.gpu->supportsFamily(static_cast<MTL::GPUFamily>(1000 + family))) device.family = family;
  if (device.family < kOldestFamily)
    throw_error(ErrorKind::declined, "{}: the kernels need an Apple GPU of family 7 (M1) or newer; use --device cpu",
                device.name);
  if (cuda) device.family = kNvidiaFamily;
  device.software = kSoftwareDevice && !cuda;
  device.bfloat = has_bfloat();
  device.memory_bytes = device.gpu->recommendedMaxWorkingSetSize();
  device.queue = NS::TransferPtr(device.gpu->newCommandQueue());
  if (!device.queue) throw_error(ErrorKind::device, "{}: Metal gives no command queue", device.name);
  return device;
}

DeviceSummary describe_device(bool cuda) {
  try {
    const Device device = open_device(cuda);
    if (cuda) return {true, false, fmt::format("{}, {} for a model", device.name, format_bytes(device.memory_bytes))};
    return {true, device.software,
            fmt::format("{}{}, family Apple{}, {} for a model", device.name,
                        device.software ? " (runs on the CPU, for checking; never chosen by auto)" : "", device.family,
                        format_bytes(device.memory_bytes))};
  } catch (const std::exception& error) {
    return {false, false, error.what()};
  }
}

}  // namespace ingot::metal

namespace ingot {

MetalStatus metal_status() {
  const metal::DeviceSummary summary = metal::describe_device();
  return {summary.available, summary.software, summary.detail};
}

MetalStatus cuda_status() {
  const metal::DeviceSummary summary = metal::describe_device(true);
  return {summary.available, summary.software, summary.detail};
}

bool metal_is_software() { return metal::kSoftwareDevice; }

}  // namespace ingot
