#pragma once

#include <time.h>

// What a test measures on a machine that does other things too.
namespace ingot::test {

inline double clock_s(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Seconds of a core that this thread, and all of this process, have had.
inline double thread_cpu_s() { return clock_s(CLOCK_THREAD_CPUTIME_ID); }
inline double process_cpu_s() { return clock_s(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace ingot::test
