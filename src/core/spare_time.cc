#include "core/spare_time.h"

#include <chrono>
#include <thread>

#include "core/threads.h"

namespace ingot {

void SpareTime::rest() {
  const double turn_us = turn_us_.load(std::memory_order_relaxed);
  if (turn_us <= 0) {
    began_us_ = 0;
    return;
  }
  const double now_us = thread_us();
  if (began_us_ == 0) began_us_ = now_us;
  const double worked_us = now_us - began_us_;
  if (worked_us < turn_us) return;
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(pause_us(worked_us)));
  began_us_ = thread_us();
}

}  // namespace ingot
