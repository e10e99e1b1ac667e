#include "engine/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/device.h"
#include "backend/cpu/isa.h"
#include "backend/metal/device.h"
#include "core/error.h"
#include "core/settings.h"
#include "core/threads.h"

namespace ingot {
namespace {

std::string describe_cpu() {
  std::vector<std::string_view> names;
  for (const cpu::Isa isa : cpu::available_isas()) names.push_back(cpu::isa_name(isa));
  return fmt::format("{} CPUs, paths that run here: {}", ThreadPool::available_cpus(), fmt::join(names, ", "));
}

// Models made in bf16 may leave the range of f16 in their activations; f16 is the more precise for all others.
DType metal_activation(const Checkpoint* checkpoint) {
  if (checkpoint == nullptr) return DType::f16;
  size_t bf16 = 0, all = 0;
  for (const TensorView& tensor : checkpoint->stored().tensors()) {
    if (tensor.shape.size() < 2) continue;
    all += tensor.data.size();
    if (tensor.dtype == DType::bf16) bf16 += tensor.data.size();
  }
  return 2 * bf16 > all ? DType::bf16 : DType::f16;
}

}  // namespace

std::vector<DeviceStatus> list_devices() {
  const MetalStatus metal = metal_status(), cuda = cuda_status();
  return {
      {"metal", metal.available, metal.detail}, {"cuda", cuda.available, cuda.detail}, {"cpu", true, describe_cpu()}};
}

std::unique_ptr<Backend> make_device(const EngineOptions& options, const Checkpoint* checkpoint) {
  std::string name = options.device;
  if (name.empty() || name == "auto") name = Settings::from_environment().device;
  // The software device is for checking: asked for by name or not at all.
  if (name.empty() || name == "auto")
    name = !metal_is_software() && metal_status().available ? "metal" : cuda_status().available ? "cuda" : "cpu";
  if (name == "cpu") {
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.isa = options.isa;
    cpu.group = options.group.get();
    cpu.tp = options.tp;
    cpu.profile = options.profile;
    if (checkpoint != nullptr)
      cpu.drop_pages = [checkpoint](std::span<const std::byte> bytes) { checkpoint->drop_pages(bytes); };
    return make_cpu_backend(cpu);
  }
  if (name == "metal" || name == "cuda") {
    const Settings settings = Settings::from_environment();
    MetalOptions metal;
    metal.cuda = name == "cuda";
    metal.activation = metal_activation(checkpoint);
    metal.resources = settings.resources;
    metal.profile = settings.profile || options.profile;
    metal.capture_next_step = settings.capture_next_step;
    metal.tuning_folder = cache_folder() + "/tuning";
    metal.group = options.group.get();
    metal.tp = options.tp;
    if (checkpoint != nullptr)
      metal.drop_pages = [checkpoint](std::span<const std::byte> bytes) { checkpoint->drop_pages(bytes); };
    return make_metal_backend(metal);
  }
  throw_error(ErrorKind::bad_call, "--device {}: must be auto, cpu, cuda or metal", name);
}

}  // namespace ingot
