#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "cli/common.h"
#include "cli/options.h"
#include "core/bandwidth.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/settings.h"
#include "core/threads.h"
#include "engine/devices.h"
#include "engine/self_test.h"
#include "hub/settings.h"

namespace ingot::cli {
namespace {

struct DoctorArgs {
  ModelArgs model;
};

// Secrets are never printed.
std::string shown(std::string_view name, const std::string& value) { return name == "HF_TOKEN" ? "(set)" : value; }

void doctor(const DoctorArgs& args) {
  fmt::print("ingot            {}\n", INGOT_VERSION);
  fmt::print("CPUs             {} usable by this process\n", ThreadPool::available_cpus());
  fmt::print("memory           {} available\n", format_bytes(available_memory_bytes()));
  fmt::print("\ndevices\n");
  for (const DeviceStatus& device : list_devices())
    fmt::print("  {:<8} {} {}\n", device.name, device.usable ? "ok:" : "not available:", device.detail);

  fmt::print("\nsettings\n");
  for (const SettingInfo& setting : setting_table()) {
    const auto value = environment(setting.name);
    fmt::print("  {:<30} {:<20} {}\n", setting.name,
               value ? shown(setting.name, *value) : fmt::format("({})", setting.default_value), setting.meaning);
  }
  Settings::from_environment();  // a bad value ends here, by name
  hub::HubSettings::from_environment();

  fmt::print("\ndefault model    ");
  try {
    fmt::print("{}\n", resolve_model(args.model.model));
  } catch (const Error& error) {
    fmt::print("none: {}\n", error.what());
  }
  const std::unique_ptr<Backend> device = make_device(args.model.engine, nullptr);
  fmt::print("\nself-test of {} ({})\n", device->info().name, device->info().description);
  if (!device->info().kernels.empty()) fmt::print("  kernels: {}\n", device->info().kernels);
  if (!device->info().tuning.empty()) fmt::print("  chosen by timing: {}\n", device->info().tuning);
  bool passed = true;
  for (const SelfTestResult& result : run_self_test(*device)) {
    fmt::print("  {:<28} {} (error {:.1e}, allowed {:.1e})\n", result.name, result.passed ? "ok" : "FAILED",
               result.error, result.allowed);
    passed = passed && result.passed;
  }
  if (!passed) throw_error(ErrorKind::device, "the self-test failed: do not trust this device's answers");
}

}  // namespace

void add_doctor(Program& program) {
  auto args = std::make_shared<DoctorArgs>();
  Options command = program.add_command("doctor", "devices, settings in force, and a self-test of the chosen device");
  add_engine_options(command, args->model);
  command.callback([args] { doctor(*args); }, false);  // lists the settings before it complains
}

}  // namespace ingot::cli
