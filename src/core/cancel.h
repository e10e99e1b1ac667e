#pragma once

#include <atomic>

#include "ingot/error.h"

namespace ingot {

// Set when whoever wanted a piece of work has left. Loops whose length others decide look at it now and then.
using CancelFlag = std::atomic<bool>;

inline void check_cancelled(const CancelFlag* flag) {
  if (flag != nullptr && flag->load(std::memory_order_relaxed))
    throw Error(ErrorKind::cancelled, "nobody waits for the answer any more");
}

}  // namespace ingot
