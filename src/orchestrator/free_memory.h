#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>

#include "core/memory.h"

namespace ingot {

// The system's free memory, asked for at most ten times a second.
class FreeMemory {
 public:
  uint64_t bytes() {
    const std::lock_guard lock(mutex_);
    const std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
    if (now - asked_ > std::chrono::milliseconds(100)) {
      bytes_ = available_memory_bytes();
      asked_ = now;
    }
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::chrono::steady_clock::time_point asked_{};
  uint64_t bytes_ = 0;
};

}  // namespace ingot
