#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <string>
#include <utility>

#include "core/cancel.h"
#include "core/error.h"

namespace ingot::grammar {

// What one grammar may cost, from its source to its masks. Whatever is over it is refused with an Error that says so:
// no source can hang the process or fill its memory.
struct Limits {
  size_t max_source_bytes = size_t{4} << 20;
  size_t max_bytes = size_t{96} << 20;  // of all that is made of it, about
  // Of the processor: a compile, and one mask or token after it.
  std::chrono::milliseconds max_compile_time{200};
  std::chrono::milliseconds max_step_time{500};
};

// A grammar that costs more than it may.
class OverBudget : public Error {
 public:
  explicit OverBudget(std::string message) : Error(ErrorKind::bad_call, std::move(message)) {}
};

// Counts what is made, and looks at the clock now and then.
class Budget {
 public:
  // `cancelled` is looked at until the first begin().
  explicit Budget(const Limits& limits, const CancelFlag* cancelled = nullptr) : limits_(limits) {
    begin(limits.max_compile_time);
    cancelled_ = cancelled;
  }

  const Limits& limits() const { return limits_; }
  size_t spent() const { return spent_.load(std::memory_order_relaxed); }  // bytes; from any thread
  void begin(std::chrono::milliseconds most) {                             // a piece of work
    end_ = now() + most;
    most_ = most;
    cancelled_ = nullptr;
  }

  // Call it for every piece of work that takes well under a millisecond.
  void tick() {
    if ((++ticks_ & 255) != 0) return;
    check_cancelled(cancelled_);
    if (now() > end_)
      throw OverBudget(fmt::format("the grammar takes longer than {} ms: make it simpler", most_.count()));
  }
  void spend(size_t bytes) {
    tick();
    const size_t all = spent() + bytes;
    spent_.store(all, std::memory_order_relaxed);  // one thread writes
    if (all > limits_.max_bytes)
      throw OverBudget(fmt::format("the grammar needs more than {} KiB: make it simpler", limits_.max_bytes >> 10));
  }
  // Of counts with a bound of their own.
  void check(size_t count, size_t most, const char* what) {
    if (count > most) throw OverBudget(fmt::format("the grammar has more than {} {}: make it simpler", most, what));
  }

 private:
  // Of this thread alone: a busy machine makes no grammar dearer.
  static std::chrono::nanoseconds now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }

  Limits limits_;
  std::chrono::nanoseconds end_{};
  std::chrono::milliseconds most_{};
  std::atomic<size_t> spent_ = 0;
  const CancelFlag* cancelled_ = nullptr;
  unsigned ticks_ = 0;
};

}  // namespace ingot::grammar
