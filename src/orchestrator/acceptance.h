#pragma once

#include <cstdint>

namespace ingot {

// How often the drafts of a sequence came true, the latest counting most.
class Acceptance {
 public:
  // The chance of a draft's next token; `prior` where little is known.
  double rate(double prior) const { return (hits_ + kPrior * prior) / (tries_ + kPrior); }
  void learn(int32_t drafted, int32_t accepted) {
    hits_ = kKept * hits_ + accepted;
    tries_ = kKept * tries_ + accepted + (accepted < drafted ? 1 : 0);  // what follows a miss tells nothing
  }
  // A draft was not worth trying: what is known gets old, so that one is tried again some day.
  void fade() {
    hits_ *= kFaded;
    tries_ *= kFaded;
  }

 private:
  static constexpr double kPrior = 2;  // tokens that the prior counts for
  static constexpr double kKept = 0.85, kFaded = 0.985;
  double hits_ = 0, tries_ = 0;
};

}  // namespace ingot
