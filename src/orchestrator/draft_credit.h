#pragma once

#include <algorithm>

namespace ingot {

// What guessing may still cost. Prices are estimates, and chances are too; this counts what steps with guesses took
// against what their tokens would have taken without. Gains are credit for tries to come; losses are debts, and nothing
// is guessed until the time that passes without guesses has paid them, at a small share. So guessing that never pays
// loses that share and a first try, whatever rows, guesses and gaps cost.
class DraftCredit {
 public:
  bool allows() const { return us_ >= 0; }

  // Reading a text before its first guess is paid for in rates by the steps that follow.
  void invest(double us) { invested_us_ += us; }
  // A step without guesses.
  void pass(double took_us) { add(kShare * took_us - rate()); }
  // A step that guessed, or waited for somebody who would. `worth_us`: what its tokens take without.
  void settle(double took_us, double worth_us) { add(std::max(worth_us - took_us, -kMostLossUs) - rate()); }

 private:
  static constexpr double kShare = 0.005;     // of the time
  static constexpr double kFirstUs = 50e3;    // to begin with
  static constexpr double kMostUs = 200e3;    // gains beyond are no licence
  static constexpr double kMostLossUs = 1e6;  // of a step: what takes longer was held up by something else
  static constexpr double kRate = 1.0 / 64;   // of what was invested, a step

  double rate() {
    const double us = kRate * invested_us_;
    invested_us_ -= us;
    return us;
  }
  void add(double us) { us_ = std::min(us_ + us, kMostUs); }

  double us_ = kFirstUs;
  double invested_us_ = 0;
};

}  // namespace ingot
