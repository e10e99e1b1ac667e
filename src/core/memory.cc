#include "core/memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace ingot {
namespace {

#if defined(__linux__)
// A number in a file of /sys/fs/cgroup, or `fallback` when there is none ("max", or no cgroup v2).
uint64_t read_number(const char* path, uint64_t fallback) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : fallback;
}

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
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t available = system_available();
  const uint64_t limit = read_number("/sys/fs/cgroup/memory.max", kNone);
  const uint64_t used = read_number("/sys/fs/cgroup/memory.current", 0);
  if (limit != kNone) available = std::min(available, limit > used ? limit - used : 0);
  return available;
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
