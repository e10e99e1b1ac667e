#pragma once

#include <cstdint>
#include <string>

namespace ingot {

// Memory a new allocation could use now without pushing the system into swapping or this process over its cgroup's
// limit; 0 when unknown.
uint64_t available_memory_bytes();

// The most physical memory this process has held.
uint64_t peak_rss_bytes();

// "1.5 GiB", "98 MiB": for people.
std::string format_bytes(uint64_t bytes);

}  // namespace ingot
