#pragma once

#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ingot::jinja {

// The Python or jinja2 exception a failing operation stands for.
enum class Fault {
  type_error,
  value_error,
  lookup_error,
  zero_division,
  overflow,
  undefined_error,
  security_error,
  runtime_error,   // jinja2's TemplateRuntimeError and FilterArgumentError
  user_exception,  // raise_exception() of the template
  unsupported,     // exists in jinja2 but not here
  limit,           // one of limits.h
};

// Thrown while rendering by code that knows no source position; the interpreter adds it and throws an ingot::Error.
class Raise : public std::exception {
 public:
  Raise(Fault fault, std::string message) : fault_(fault), message_(std::move(message)) {}
  Fault fault() const { return fault_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  Fault fault_;
  std::string message_;
};

template <typename... Args>
[[noreturn]] void raise(Fault fault, fmt::format_string<Args...> format, Args&&... args) {
  throw Raise(fault, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace ingot::jinja
