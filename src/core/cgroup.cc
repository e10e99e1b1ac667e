#include "core/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

// The group in the hierarchy of a controller, from the line "4:cpu,cpuacct:/a/b" or, of version 2, "0::/a/b".
std::optional<fs::path> own_group(const fs::path& self, std::string_view controller) {
  std::ifstream file(self);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_it = controller.empty() ? line.starts_with("0::")
                                          : controllers.find(fmt::format(",{},", controller)) != controllers.npos;
    if (is_it) return line.substr(second + 2);
  }
  return std::nullopt;
}

// f(folder) for this process's group in a hierarchy and those around it. Inside a container the path may be that of the
// host: of what is not there, only the root remains.
template <typename F>
void for_each_group(const Cgroups& groups, std::string_view controller, F&& f) {
  std::optional<fs::path> group = own_group(groups.self, controller);
  const fs::path root = groups.root / controller;
  for (; group && !group->empty(); group = group->parent_path()) f(root / *group);
  f(root);
}

// "max", or no file: `otherwise`.
uint64_t read_number(const fs::path& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;
}

// Of a group's pages, those of files.
uint64_t cached_files(const fs::path& group, const std::string& prefix) {
  std::ifstream file(group / "memory.stat");
  std::string key;
  uint64_t bytes = 0;
  for (uint64_t value = 0; file >> key >> value;)
    if (key == prefix + "inactive_file" || key == prefix + "active_file") bytes += value;
  return bytes;
}

uint64_t memory_left(const fs::path& group, const char* limit_name, const char* used_name, const std::string& prefix) {
  const uint64_t limit = read_number(group / limit_name, kNone);
  if (limit == kNone) return kNone;
  const uint64_t current = read_number(group / used_name, 0);
  const uint64_t used = current - std::min(current, cached_files(group, prefix));
  return limit > used ? limit - used : 0;
}

double cpus(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

}  // namespace

double cgroup_cpus(const Cgroups& groups) {
  double least = std::numeric_limits<double>::infinity();
  for_each_group(groups, "", [&](const fs::path& group) {
    std::ifstream file(group / "cpu.max");  // "quota period", both in us, or "max period"
    double quota = 0, period = 0;
    if (file >> quota >> period) least = std::min(least, cpus(quota, period));
  });
  for_each_group(groups, "cpu", [&](const fs::path& group) {
    std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");  // -1: no limit
    double quota = 0, period = 0;
    if (quota_file >> quota && period_file >> period) least = std::min(least, cpus(quota, period));
  });
  return least;
}

uint64_t cgroup_memory_left(const Cgroups& groups) {
  uint64_t least = kNone;
  for_each_group(groups, "", [&](const fs::path& group) {
    least = std::min(least, memory_left(group, "memory.max", "memory.current", ""));
  });
  for_each_group(groups, "memory", [&](const fs::path& group) {  // without a limit it is more than any machine has
    least = std::min(least, memory_left(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"));
  });
  return least;
}

}  // namespace ingot
