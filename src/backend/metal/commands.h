#pragma once

#include <Metal/Metal.hpp>

#include "backend/counters.h"

// The only calls of Metal that submit work or wait for it, counted there and then, whatever asked for them: a step, a
// profile, the load of a weight. No other file of this device makes them (tests/tree/metal_calls_test.py).
namespace ingot::metal {

inline void commit(MTL::CommandBuffer* commands, DeviceCounters& counters) {
  ++counters.submissions;
  commands->commit();
}

inline void wait_for(MTL::CommandBuffer* commands, DeviceCounters& counters) {
  ++counters.waits;
  commands->waitUntilCompleted();
}

}  // namespace ingot::metal
