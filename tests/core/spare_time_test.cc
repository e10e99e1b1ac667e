#include "core/spare_time.h"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <chrono>

#include "core/threads.h"

namespace ingot {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWorkUs = 4000;

// Works for that long by the thread's own clock, resting in between; returns how long it took, in microseconds.
double work(SpareTime& spare) {
  const Clock::time_point begin = Clock::now();
  for (const double end = thread_us() + kWorkUs; thread_us() < end;) spare.rest();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// A pause is never shorter than asked for, however busy or idle the machine is.
TEST(SpareTime, TakesItsShareOfACoreInTurns) {
  constexpr double kTurnUs = 200;
  SpareTime spare;
  spare.limit(kTurnUs);
  // Of the last turn the pause may be yet to come.
  EXPECT_GT(work(spare), (kWorkUs - kTurnUs) / SpareTime::kShare - kTurnUs);
}

TEST(SpareTime, APauseIsAsMuchLongerAsTheTurnTookLonger) {
  EXPECT_DOUBLE_EQ(SpareTime::pause_us(100), 300);
  EXPECT_DOUBLE_EQ(SpareTime::pause_us(1000), 3000);
}

#if defined(__linux__)
// Pauses are counted, not timed: a thread that never waits leaves its core only when it is taken off it.
TEST(SpareTime, WithoutALimitThereAreNoPauses) {
  const auto waits = [] {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  SpareTime spare;
  work(spare);
  const long before = waits();
  work(spare);
  EXPECT_EQ(waits(), before);
  spare.limit(1000);
  work(spare);
  const long limited = waits();
  EXPECT_GT(limited, before);
  spare.limit(0);
  work(spare);
  EXPECT_EQ(waits(), limited) << "lifted";
}
#endif

}  // namespace
}  // namespace ingot
