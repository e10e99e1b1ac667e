#pragma once

#include <cerrno>
#include <cstring>
#include <string>

#include "core/error.h"

namespace ingot {

// "NAME: cannot be read: Permission denied", Error (io), of a call of the system that just failed.
[[noreturn]] inline void throw_errno(const std::string& name, const char* what) {
  throw_error(ErrorKind::io, "{}: {}: {}", name, what, std::strerror(errno));
}

}  // namespace ingot
