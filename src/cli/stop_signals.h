#pragma once

#include <chrono>

namespace ingot::cli {

// SIGINT and SIGTERM, counted instead of ending the process. One object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // the system's handling again
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Until then a signal ends the process at once with status 0: while a model loads there is nothing to finish.
  void begin_counting();
  // Waits for one more signal; false when none comes within the time (negative: forever).
  bool wait(std::chrono::milliseconds most);

 private:
  int read_end_ = -1;
};

}  // namespace ingot::cli
