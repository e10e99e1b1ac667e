#include "orchestrator/part_count.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ingot::testing {
namespace {

// Rounds of a pipeline of two stages, with `streams` sequences: what a step takes in a stage, and what it is on its
// way. The part of rounds that were divided by three, of those after the first tries.
double thirds(int32_t streams, double fixed_us, double row_us, double way_us) {
  PartCount parts(2);
  PartCount::Clock::time_point now{};
  int32_t thirds = 0;
  constexpr int32_t kRounds = 1000, kFirst = 60;
  for (int32_t round = 0; round < kRounds; ++round) {
    const int32_t n = parts.now();
    const double stage_us = fixed_us + row_us * streams / n, round_us = std::max(n * stage_us, 2 * stage_us + way_us);
    if (round >= kFirst) thirds += n == 3;
    for (int32_t part = 0; part < n; ++part) {
      now += std::chrono::nanoseconds(static_cast<int64_t>(1e3 * round_us / n));
      parts.learn(streams / n, streams, true, now);
    }
  }
  return static_cast<double>(thirds) / (kRounds - kFirst);
}

TEST(PartCount, FollowsWhatIsFaster) {
  EXPECT_LT(thirds(12, 1000, 1, 100), 0.1) << "a step of four rows costs what one of six does";
  EXPECT_GT(thirds(12, 100, 500, 1500), 0.9) << "rows cost, and the way is long";
}

TEST(PartCount, LearnsNothingOfStepsThatCannotBeCompared) {
  PartCount parts(3);
  PartCount::Clock::time_point now{};
  for (int i = 0; i < 10000; ++i) {
    now += std::chrono::milliseconds(1);
    parts.learn(2, 8 + i % 2, true, now);
    parts.learn(2, 8 + i % 2, false, now);
    ASSERT_EQ(parts.now(), 3);
  }
}

}  // namespace
}  // namespace ingot::testing
