#pragma once

#include <cstdint>

#include "backend/metal/kernels/params.h"

namespace ingot::metal {

// The value of one function constant.
struct Constant {
  FunctionConstant index = {};
  bool boolean = false;  // else an unsigned integer
  uint32_t value = 0;

  static Constant u(FunctionConstant index, int64_t value) { return {index, false, static_cast<uint32_t>(value)}; }
  static Constant b(FunctionConstant index, bool value) { return {index, true, value ? 1u : 0u}; }
  friend auto operator<=>(const Constant&, const Constant&) = default;
};

}  // namespace ingot::metal
