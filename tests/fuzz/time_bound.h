#pragma once

#include <time.h>

#include <cstddef>

// Traps when what is done while it exists takes more of this thread's time than its input's size allows: 200 us a byte,
// which is hundreds of times what linear work takes even under a sanitizer, and half a second for what is made once.
class TimeBound {
 public:
  explicit TimeBound(size_t bytes) : most_s_(0.5 + 200e-6 * static_cast<double>(bytes)), start_s_(now_s()) {}
  ~TimeBound() {
    if (now_s() - start_s_ > most_s_) __builtin_trap();
  }
  TimeBound(const TimeBound&) = delete;
  TimeBound& operator=(const TimeBound&) = delete;

 private:
  static double now_s() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  }

  double most_s_, start_s_;
};
