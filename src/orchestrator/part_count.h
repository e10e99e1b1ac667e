#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace ingot {

// Into how many steps the sequences that decode are divided, where a model is in stages: as many as there are stages,
// or one more. One more keeps all stages busy while rows and tokens are on their way, and costs every stage a step more
// a round, which is dear where a step of few rows takes as long as one of many. Which is faster is tried, time and
// again.
class PartCount {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PartCount(int32_t stages) : stages_(stages) {}

  int32_t now() const { return stages_ + (more_ ? 1 : 0); }
  // A step came back, with so many tokens; `comparable`: it had nothing but a part of the `streams` sequences.
  void learn(int32_t tokens, int32_t streams, bool comparable, Clock::time_point when);

  static constexpr int32_t kRounds = 8;  // of all sequences, in a measurement
  static constexpr int32_t kKept = 32;   // measurements until the other number is tried again

 private:
  void begin();

  int32_t stages_;
  bool more_ = false, trying_ = false;
  int32_t kept_ = kKept - 1;
  int32_t streams_ = 0;
  int32_t steps_ = 0;  // below 0: those that were under way when the measurement began
  int64_t tokens_ = 0;
  Clock::time_point start_;
  std::array<double, 2> speed_{};  // tokens a second, without and with one more
};

}  // namespace ingot
