#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ingot {

// What kind of thing went wrong; callers map it to an exit status or an HTTP status.
enum class ErrorKind {
  bad_call,       // the caller's arguments are wrong: exit 2, HTTP 400
  bad_file,       // a file is truncated, malformed or hostile
  declined,       // valid, but not something this engine or device runs; the message says what to do
  out_of_memory,  // the memory plan does not fit; the message has the numbers
  overloaded,     // too much work at the moment: try again later, HTTP 503
  io,             // the system refused: missing file, no permission, network down
  device,         // the device failed while running
  internal,       // a bug of ours
};

// The one exception type of the project. `what()` is a single line that says what was wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::string param = "")
      : std::runtime_error(std::move(message)), kind_(kind), param_(std::move(param)) {}
  ErrorKind kind() const { return kind_; }
  // The parameter of the call that is at fault ("top_p"); empty: none, or not known.
  const std::string& param() const { return param_; }

 private:
  ErrorKind kind_;
  std::string param_;
};

// throw_error(ErrorKind::bad_file, "tensor {}: offset {} is past the end", name, offset)
template <typename... Args>
[[noreturn]] void throw_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// A bad call by the fault of one parameter, whose name starts the message:
// throw_bad_parameter("n", "is {}, but must be at least 1", n)
template <typename... Args>
[[noreturn]] void throw_bad_parameter(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::bad_call, param + " " + fmt::format(format, std::forward<Args>(args)...), param);
}

}  // namespace ingot
