#include "orchestrator/part_count.h"

namespace ingot {

void PartCount::begin() {
  steps_ = -2 * now();
  tokens_ = 0;
}

void PartCount::learn(int32_t tokens, int32_t streams, bool comparable, Clock::time_point when) {
  if (!comparable || streams != streams_) {
    streams_ = streams;
    return begin();
  }
  if (++steps_ <= 0) {
    start_ = when;
    return;
  }
  tokens_ += tokens;
  if (steps_ < kRounds * now()) return;
  speed_[more_ ? 1 : 0] = static_cast<double>(tokens_) / std::chrono::duration<double>(when - start_).count();
  if (trying_) {
    more_ = speed_[1] > speed_[0];
    trying_ = false;
    kept_ = 0;
  } else if (++kept_ >= kKept && streams_ > stages_) {
    more_ = !more_;
    trying_ = true;
  }
  begin();
}

}  // namespace ingot
