#pragma once

#include <string>

#include "backend/inventory.h"
#include "backend/op.h"
#include "backend/profile.h"
#include "step/view.h"

namespace ingot::cpu {

// What is known of an operation before it runs: its name in profiles, and what it multiplies. `bytes`: of weights and
// of the cache, as Inventory counted them. `bf16`: products of bf16 weights multiply bf16.
struct TimedOp {
  std::string name;
  Profile::Line line;
};
TimedOp timed_op(const Op& op, const Inventory& has, const StepView& step, uint64_t bytes, bool bf16);

}  // namespace ingot::cpu
