#pragma once

#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace ingot::jinja {

// Thrown while rendering by code that knows no source position; Template::render() adds it and throws an ingot::Error.
struct Raise : std::exception {
  Raise(ErrorKind k, std::string m) : kind(k), message(std::move(m)) {}
  const char* what() const noexcept override { return message.c_str(); }

  ErrorKind kind;
  std::string message;
};

// The template cannot work with what it was given, as Python would say it.
template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw Raise(ErrorKind::bad_call, fmt::format(format, std::forward<Args>(args)...));
}

// Python or jinja2 has it, this engine has not.
template <typename... Args>
[[noreturn]] void raise_unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Raise(ErrorKind::declined, fmt::format(format, std::forward<Args>(args)...));
}

// One of limits.h.
template <typename... Args>
[[noreturn]] void raise_limit(fmt::format_string<Args...> format, Args&&... args) {
  throw Raise(ErrorKind::bad_file, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ingot::jinja
