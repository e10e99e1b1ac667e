// metal-cpp wants its implementation in exactly one file.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "backend/metal/device.h"

#include "core/error.h"
#include "core/memory.h"

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

}  // namespace

Device open_device() {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  Device device;
  device.gpu = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  if (!device.gpu) throw_error(ErrorKind::declined, "no Metal device: this machine has no GPU that Metal can use");
  device.name = device.gpu->name()->utf8String();
  for (int family = kOldestFamily; family <= kNewestFamily; ++family)
    if (device.gpu->supportsFamily(static_cast<MTL::GPUFamily>(1000 + family))) device.family = family;
  if (device.family < kOldestFamily)
    throw_error(ErrorKind::declined, "{}: the kernels need an Apple GPU of family 7 (M1) or newer; use --device cpu",
                device.name);
  device.software = kSoftwareDevice;
  device.bfloat = has_bfloat();
  device.memory_bytes = device.gpu->recommendedMaxWorkingSetSize();
  device.queue = NS::TransferPtr(device.gpu->newCommandQueue());
  if (!device.queue) throw_error(ErrorKind::device, "{}: Metal gives no command queue", device.name);
  return device;
}

DeviceSummary describe_device() {
  try {
    const Device device = open_device();
    return {true, device.software,
            fmt::format("{}{}, family Apple{}, {} for a model", device.name,
                        device.software ? " (runs on the CPU, for checking; never chosen by auto)" : "", device.family,
                        format_bytes(device.memory_bytes))};
  } catch (const std::exception& error) {
    return {false, false, error.what()};
  }
}

}  // namespace ingot::metal
