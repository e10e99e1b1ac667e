#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"

namespace ingot::python {

// Tells an event loop that there is news: a file that becomes readable. Rung by the step loop, which must never wait
// for Python.
class Bell {
 public:
  Bell() {
    if (pipe(ends_) != 0) throw_error(ErrorKind::io, "no pipe can be made: too many files are open");
    for (const int end : ends_) {
      fcntl(end, F_SETFD, FD_CLOEXEC);
      fcntl(end, F_SETFL, O_NONBLOCK);
    }
  }
  ~Bell() {
    for (const int end : ends_) close(end);
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  int fileno() const { return ends_[0]; }
  // A pipe that is full has been rung often enough.
  void ring() const { [[maybe_unused]] const ssize_t written = write(ends_[1], "", 1); }
  void silence() const {
    char bytes[512];
    while (read(ends_[0], bytes, sizeof bytes) == static_cast<ssize_t>(sizeof bytes)) continue;
  }

 private:
  int ends_[2] = {-1, -1};
};

}  // namespace ingot::python
