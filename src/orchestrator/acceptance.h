#pragma once

#include <cstdint>

namespace ingot {

// How often drafts came true, the latest counting most.
class Acceptance {
 public:
  // `kept`: of what is known when one more draft tells its result; `faded`: when one was not worth trying. `weight`:
  // tokens that a prior counts for.
  explicit Acceptance(double kept = 0.85, double faded = 0.985, double weight = 2)
      : kept_(kept), faded_(faded), weight_(weight) {}

  // The chance of a draft's next token; `prior` where little is known.
  double rate(double prior) const { return (hits_ + weight_ * prior) / (tries_ + weight_); }
  void learn(int32_t drafted, int32_t accepted) {
    hits_ = kept_ * hits_ + accepted;
    tries_ = kept_ * tries_ + accepted + (accepted < drafted ? 1 : 0);  // what follows a miss tells nothing
  }
  // A draft was not worth trying: what is known gets old, so that one is tried again some day.
  void fade() {
    hits_ *= faded_;
    tries_ *= faded_;
  }
  double tries() const { return tries_; }  // tokens that are known of

 private:
  double kept_, faded_, weight_;
  double hits_ = 0, tries_ = 0;
};

}  // namespace ingot
