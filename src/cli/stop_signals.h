#pragma once

#include <chrono>

namespace ingot::cli {

// SIGINT, SIGTERM and SIGHUP, counted instead of ending the process. One object at a time.
class StopSignals {
 public:
  // `from_mpirun`: SIGUSR1 too, which mpirun passes on (two seconds after the others it kills).
  explicit StopSignals(bool from_mpirun = false);
  ~StopSignals();  // the system's handling again
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Until then a signal ends the process at once with status 0: while a model loads there is nothing to finish.
  void begin_counting();
  // Waits for one more signal; false when none comes within the time (negative: forever).
  bool wait(std::chrono::milliseconds most);
  int number() const { return number_; }  // of the signal that wait() saw last

 private:
  int read_end_ = -1;
  int number_ = 0;
};

}  // namespace ingot::cli
