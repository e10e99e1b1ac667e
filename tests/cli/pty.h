#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace ingot::testing {

// A program on a terminal of its own, and the hands that type there.
class Pty {
 public:
  // `environment` is added to this process's own, as NAME=value.
  Pty(const std::vector<std::string>& command, const std::vector<std::string>& environment);
  ~Pty();
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  void type(const std::string& keys);
  // Waits until `text` was printed after what earlier calls found; false when it was not within the time.
  bool expect(const std::string& text, double seconds = 30);
  // The end of what was printed so far.
  std::string output() const { return output_.substr(output_.size() > 3000 ? output_.size() - 3000 : 0); }
  // Waits for the end; the exit status, 128 + the signal, or -1 when it does not end.
  int wait(double seconds = 30);
  pid_t pid() const { return pid_; }

 private:
  bool read_some(double seconds);

  int terminal_ = -1;
  bool closed_ = false;  // nothing will be printed any more
  pid_t pid_ = -1;
  std::string output_;
  size_t seen_ = 0;
};

}  // namespace ingot::testing
