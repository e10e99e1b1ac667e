#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"

namespace ingot {

struct SelfTestResult {
  std::string name;
  bool passed = false;
  double error = 0;  // largest absolute error seen
  double allowed = 0;
};

// A few small operations on a fresh device, against plain double-precision arithmetic: enough to notice a broken ISA
// path, driver or kernel. The device cannot be used for a model afterwards.
std::vector<SelfTestResult> run_self_test(Backend& device);

}  // namespace ingot
