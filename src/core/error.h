#pragma once

#include <utility>

#include <fmt/format.h>

#include "ingot/error.h"

namespace ingot {

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
