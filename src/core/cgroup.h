#pragma once

#include <cstdint>
#include <filesystem>

// What Linux's control groups, of version 2 and of version 1, allow this process: its own group and all around it, of
// which the tightest counts. A container has one, and so has a service of systemd.
namespace ingot {

struct Cgroups {
  std::filesystem::path root = "/sys/fs/cgroup";     // where they are mounted
  std::filesystem::path self = "/proc/self/cgroup";  // says which one this process is in
};

// Processors' worth of time: 1.5 is three ticks of every two. Infinity: no limit.
double cgroup_cpus(const Cgroups& groups = {});

// Bytes until the limit. Cached files do not count as used: they make room. The largest number: no limit.
uint64_t cgroup_memory_left(const Cgroups& groups = {});

}  // namespace ingot
