#include "core/memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace ingot {
namespace {

// A line of a file in /proc, in bytes; 0 where there is none.
uint64_t proc_bytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) * 1024;
  return 0;
}

TEST(Memory, ThePeakIsThatOfTheProcess) {
  constexpr size_t kBytes = size_t{64} << 20;
  {
    const std::vector<char> touched(kBytes, 1);
    EXPECT_EQ(std::accumulate(touched.begin(), touched.end(), size_t{0}), kBytes);
  }
  const uint64_t after = peak_rss_bytes();
  EXPECT_GE(after, kBytes) << "stays when the memory is gone";
#ifdef __linux__
  const auto counted = static_cast<double>(proc_bytes("/proc/self/status", "VmHWM"));
  EXPECT_NEAR(static_cast<double>(after), counted, 0.05 * counted);
#endif
}

TEST(Memory, WhatIsFreeIsLessThanThereIs) {
  EXPECT_GT(available_memory_bytes(), 0u);
#ifdef __linux__
  EXPECT_LT(available_memory_bytes(), proc_bytes("/proc/meminfo", "MemTotal"));
#endif
}

}  // namespace
}  // namespace ingot
