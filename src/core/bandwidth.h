#pragma once

namespace ingot {

// The rate at which `threads` threads read main memory together, in GB/s (1e9 bytes), best of a few sweeps over a
// buffer far larger than the caches. Takes about half a second.
double measure_read_bandwidth(int threads);

}  // namespace ingot
