#pragma once

#include <cstdint>

namespace ingot {

// The rate at which `threads` threads read main memory together, in GB/s (1e9 bytes), best of a few sweeps over a
// buffer far larger than the caches. Takes about half a second for the buffer that is the default.
double measure_read_bandwidth(int threads, int64_t bytes = int64_t{512} << 20);

}  // namespace ingot
