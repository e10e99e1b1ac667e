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

}  // namespace ingot
