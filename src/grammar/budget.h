#pragma once

#include <chrono>
#include <cstddef>
#include <ctime>

#include "core/error.h"

namespace ingot::grammar {

// What one grammar may cost, from its source to its masks. Whatever is over it is refused with an Error that says so:
// no source can hang the process or fill its memory.
struct Limits {
  size_t max_source_bytes = size_t{4} << 20;
  size_t max_expressions = 400'000;                 // nodes of regular expressions, about 100 bytes each
  size_t max_states = 200'000;                      // of rules, of the lexer and of the parser each
  size_t max_configurations = 16'384;               // states of the whole automaton kept at once, about 2 KiB each
  std::chrono::milliseconds max_compile_time{200};  // of the processor
};

// A grammar that costs more than it may.
class OverBudget : public Error {
 public:
  explicit OverBudget(std::string message) : Error(ErrorKind::bad_call, std::move(message)) {}
};

// Counts what is made, and looks at the clock now and then while a grammar is compiled.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), end_(now() + limits.max_compile_time) {}

  const Limits& limits() const { return limits_; }
  void compiled() { timed_ = false; }  // from now on sizes alone count

  // Call it for every piece of work that takes well under a millisecond.
  void tick() {
    if (timed_ && (++ticks_ & 255) == 0 && now() > end_)
      throw OverBudget(fmt::format("the grammar takes longer than {} ms to compile: make it simpler",
                                   limits_.max_compile_time.count()));
  }
  void check(size_t count, size_t most, const char* what) {
    tick();
    if (count > most) throw OverBudget(fmt::format("the grammar needs more than {} {}: make it simpler", most, what));
  }

 private:
  // Of this thread alone: a busy machine makes no grammar dearer.
  static std::chrono::nanoseconds now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
  Limits limits_;
  std::chrono::nanoseconds end_;
  bool timed_ = true;
  unsigned ticks_ = 0;
};

}  // namespace ingot::grammar
