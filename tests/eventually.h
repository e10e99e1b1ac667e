#pragma once

#include <chrono>
#include <thread>

// What a test waits for that other threads or processes do. The time says that it happens, not how fast: a busy machine
// holds up any thread for seconds.
namespace ingot::test {

// Waits until `done()` holds; false when it does not within the time.
template <typename Done>
bool eventually(Done done, std::chrono::milliseconds most = std::chrono::seconds(60)) {
  const auto until = std::chrono::steady_clock::now() + most;
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace ingot::test
