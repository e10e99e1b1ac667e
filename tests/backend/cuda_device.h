#pragma once

#include <gtest/gtest.h>

#include <string>

#include "backend/metal/device.h"

namespace ingot::test {

// Why tests on an NVIDIA GPU cannot run here; empty when they can.
inline const std::string& cuda_missing() {
  static const std::string reason = [] {
    const MetalStatus status = cuda_status();
    return status.available ? std::string() : status.detail;
  }();
  return reason;
}

}  // namespace ingot::test

// In SetUp() or a test's body.
#define INGOT_SKIP_WITHOUT_CUDA(device) \
  if ((device) == "cuda" && !::ingot::test::cuda_missing().empty()) GTEST_SKIP() << ::ingot::test::cuda_missing()
