// metal-cpp wants its implementation in exactly one file.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "backend/metal/gpu.h"

#include "backend/metal/device.h"
#include "backend/metal/host_hooks.h"
#include "backend/metal/linear/plan.h"
#include "core/error.h"
#include "core/memory.h"

namespace ingot::metal {
namespace {

constexpr int kOldestFamily = 7, kNewestFamily = 10;  // simdgroup_matrix needs Apple7

}  // namespace

Gpu open_gpu(bool cuda) {
  const auto pool = NS::TransferPtr(NS::AutoreleasePool::alloc()->init());
  Gpu gpu;
  gpu.device = NS::TransferPtr(cuda ? host::new_cuda_device() : MTL::CreateSystemDefaultDevice());
  if (!gpu.device) throw_error(ErrorKind::declined, "no Metal device: this machine has no GPU that Metal can use");
  gpu.name = gpu.device->name()->utf8String();
  for (int family = kOldestFamily; family <= kNewestFamily; ++family)
    if (gpu.device->supportsFamily(static_cast<MTL::GPUFamily>(1000 + family))) gpu.family = family;
  if (gpu.family < kOldestFamily)
    throw_error(ErrorKind::declined, "{}: the kernels need an Apple GPU of family 7 (M1) or newer; use --device cpu",
                gpu.name);
  if (cuda) gpu.family = kNvidiaFamily;
  gpu.software = host::is_software() && !cuda;
  gpu.bfloat = host::has_bfloat();
  gpu.memory_bytes = gpu.device->recommendedMaxWorkingSetSize();
  gpu.queue = NS::TransferPtr(gpu.device->newCommandQueue());
  if (!gpu.queue) throw_error(ErrorKind::device, "{}: Metal gives no command queue", gpu.name);
  return gpu;
}

}  // namespace ingot::metal

namespace ingot {
namespace {

MetalStatus describe_gpu(bool cuda) {
  try {
    const metal::Gpu gpu = metal::open_gpu(cuda);
    if (cuda) return {true, false, fmt::format("{}, {} for a model", gpu.name, format_bytes(gpu.memory_bytes))};
    return {true, gpu.software,
            fmt::format("{}{}, family Apple{}, {} for a model", gpu.name,
                        gpu.software ? " (runs on the CPU, for checking; never chosen by auto)" : "", gpu.family,
                        format_bytes(gpu.memory_bytes))};
  } catch (const std::exception& error) {
    return {false, false, error.what()};
  }
}

}  // namespace

MetalStatus metal_status() { return describe_gpu(false); }
MetalStatus cuda_status() { return describe_gpu(true); }
bool metal_is_software() { return metal::host::is_software(); }

}  // namespace ingot
