#include <algorithm>
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

void run(const TakeStatesOp& op, const Job& job) {
  const StepView& view = job.step.view;
  const float* in = view.floats(op.embedded ? view.step().embedded : view.step().given);
  float* out = job.device.floats(op.out);
  job.worker.share(view.step().tokens,
                   [&](int64_t row) { std::copy_n(in + row * op.dim, op.dim, out + row * op.dim); });
}

void run(const GiveStatesOp& op, const Job& job) {
  const OutputLayout& layout = *job.step.layout;
  const float* in = job.device.floats(op.in);
  float* out = reinterpret_cast<float*>(job.step.output + layout.states) + op.column;
  const StepView& view = job.step.view;
  job.worker.share(view.step().states, [&](int64_t row) {
    std::copy_n(in + view.state_rows()[row] * op.dim, op.dim, out + row * layout.state_width);
  });
}

}  // namespace ingot::cpu
