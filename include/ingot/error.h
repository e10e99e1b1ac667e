#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace ingot {

// What kind of thing went wrong; callers map it to an exit status or an HTTP status.
enum class ErrorKind {
  bad_call,       // the caller's arguments are wrong: exit 2, HTTP 400
  bad_file,       // a file is truncated, malformed or hostile
  declined,       // valid, but not something this engine or device runs; the message says what to do
  out_of_memory,  // the memory plan does not fit; the message has the numbers
  overloaded,     // too much work at the moment: try again later, HTTP 503
  cancelled,      // whoever asked has left
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

// A step that does not hold together. Names the field, the index in it (-1: the field itself) and the limit it broke.
class StepError : public Error {
 public:
  StepError(std::string field, int64_t index, std::string reason, int64_t value, int64_t limit);

  const std::string& field() const { return field_; }
  int64_t index() const { return index_; }
  int64_t value() const { return value_; }
  int64_t limit() const { return limit_; }

 private:
  std::string field_;
  int64_t index_;
  int64_t value_;
  int64_t limit_;
};

}  // namespace ingot
