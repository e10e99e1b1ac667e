#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"

namespace ingot::cpu {

void run(const RopeTableOp& op, const Job& job) {
  constexpr int64_t kRows = 16;
  const std::vector<float>& inv_freq = job.device.weights[static_cast<size_t>(op.inv_freq.index)].vector;
  const StepView& view = job.step.view;
  const int64_t tokens = view.step().tokens;
  job.worker.share((tokens + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(tokens, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      float* out = job.device.floats(op.out) + row * static_cast<int64_t>(inv_freq.size()) * 2;
      // The angle in double: a float would lose 1e-3 of a turn at position 100,000.
      for (const float frequency : inv_freq) {
        const double angle = static_cast<double>(view.positions()[row]) * static_cast<double>(frequency);
        *out++ = static_cast<float>(std::cos(angle)) * op.factor;
        *out++ = static_cast<float>(std::sin(angle)) * op.factor;
      }
    }
  });
}

}  // namespace ingot::cpu
