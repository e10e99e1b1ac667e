#include "engine/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "core/error.h"
#include "core/settings.h"
#include "core/threads.h"

namespace ingot {
namespace {

constexpr const char* kNoMetal = "this build has no Metal device";
constexpr const char* kNoCuda = "this build has no CUDA device";

std::string describe_cpu() {
  std::vector<std::string_view> names;
  for (const cpu::Isa isa : cpu::available_isas()) names.push_back(cpu::isa_name(isa));
  return fmt::format("{} CPUs, paths that run here: {}", ThreadPool::available_cpus(), fmt::join(names, ", "));
}

}  // namespace

std::vector<DeviceStatus> list_devices() {
  return {{"metal", false, kNoMetal}, {"cuda", false, kNoCuda}, {"cpu", true, describe_cpu()}};
}

std::unique_ptr<Backend> make_device(const EngineOptions& options, const Checkpoint* checkpoint) {
  std::string name = options.device;
  if (name.empty() || name == "auto") name = Settings::from_environment().device;
  if (name.empty() || name == "auto") name = "cpu";
  if (name == "cpu") {
    CpuOptions cpu;
    cpu.threads = options.threads;
    cpu.isa = options.isa;
    if (checkpoint != nullptr)
      cpu.drop_pages = [checkpoint](std::span<const std::byte> bytes) { checkpoint->drop_pages(bytes); };
    return make_cpu_backend(cpu);
  }
  for (const DeviceStatus& device : list_devices())
    if (device.name == name) throw_error(ErrorKind::declined, "--device {}: {}; use --device cpu", name, device.detail);
  throw_error(ErrorKind::bad_call, "--device {}: must be auto, cpu, cuda or metal", name);
}

}  // namespace ingot
