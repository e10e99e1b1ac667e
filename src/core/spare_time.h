#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace ingot {

// Called between parts of a long work that take some ten microseconds each, so many bytes where it is work on bytes.
using Rest = std::function<void()>;
inline constexpr size_t kRestBytes = size_t{32} << 10;

// What a thread takes of a core whose work can wait for that of others. A lower priority alone does not keep it out of
// their way: once the system has given it a core it stays there for milliseconds, and whoever shares work with that
// core's thread waits as long. So the work is done in turns that are short, with pauses between them that are longer.
class SpareTime {
 public:
  // Of a core's time while it is limited.
  static constexpr double kShare = 0.25;

  // From any thread: a turn may take so long; 0: there is no limit.
  void limit(double turn_us) { turn_us_.store(turn_us, std::memory_order_relaxed); }

  // Of the thread that works, a Rest: sleeps when its turn is over.
  void rest();

  // How long to pause after a turn that took so long.
  static double pause_us(double turn_us) { return turn_us * (1 / kShare - 1); }

 private:
  std::atomic<double> turn_us_{0};
  double began_us_ = 0;  // the thread's time on a core when its turn began
};

}  // namespace ingot
