#pragma once

#include <cstdint>

namespace ingot {

// Counters of what happened on the device, cumulative; the engine takes differences around a step's phases.
struct DeviceCounters {
  uint64_t submissions = 0;
  uint64_t waits = 0;      // waits and status polls
  uint64_t readbacks = 0;  // host reads of device memory
  uint64_t allocations = 0;
  uint64_t compiles = 0;
  uint64_t dispatches = 0;
  uint64_t barriers = 0;  // between dispatches
};

}  // namespace ingot
