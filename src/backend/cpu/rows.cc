#include <cstring>

#include "backend/cpu/ops.h"

namespace ingot::cpu {

void run(const GatherRowsOp& op, const Job& job) {
  const float* in = job.device.floats(op.in);
  float* out = job.device.floats(op.out);
  const StepView& view = job.step.view;
  job.worker.share(view.step().samples, [&](int64_t row) {
    std::memcpy(out + row * op.dim, in + view.sample_rows()[row] * op.dim, static_cast<size_t>(op.dim) * sizeof(float));
  });
}

}  // namespace ingot::cpu
