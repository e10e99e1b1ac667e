#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ingot::server {

// Lines to a file descriptor, written by a thread of its own: whoever logs never waits for whoever reads. What the
// reader leaves unread is kept up to a limit; over it lines are dropped and counted, and the next line that goes out
// says how many.
class LogWriter {
 public:
  // `tell` makes the line that says how many were dropped.
  LogWriter(int descriptor, std::function<std::string(uint64_t dropped)> tell, size_t most_bytes = size_t{1} << 20);
  ~LogWriter();  // gives the reader a last moment for what is kept

  void write(std::string_view line);  // from any thread; without its line end
  uint64_t dropped() const;           // lines since the start

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ingot::server
