#include "core/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "core/cgroup.h"

namespace ingot {
namespace {

#if defined(__linux__)
uint64_t system_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib >> unit)
    if (key == "MemAvailable:") return kib * 1024;
  return 0;
}
#endif

}  // namespace

uint64_t available_memory_bytes() {
#if defined(__linux__)
  return std::min(system_available(), cgroup_memory_left());
#elif defined(__APPLE__)
  uint64_t total = 0;
  size_t size = sizeof total;
  if (sysctlbyname("hw.memsize", &total, &size, nullptr, 0) != 0) return 0;
  return total / 4 * 3;  // what macOS lets one process keep resident in practice
#else
  return 0;
#endif
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#if defined(__APPLE__)
  return static_cast<uint64_t>(usage.ru_maxrss);
#else
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
#endif
}

std::string format_bytes(uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= 1ull << 30) return fmt::format("{:.2f} GiB", value / (1ull << 30));
  if (bytes >= 1ull << 20) return fmt::format("{:.1f} MiB", value / (1ull << 20));
  if (bytes >= 1ull << 10) return fmt::format("{:.1f} KiB", value / (1ull << 10));
  return fmt::format("{} bytes", bytes);
}

}  // namespace ingot
