#include <algorithm>

#include "backend/cpu/ops.h"

namespace ingot::cpu {

size_t work_bytes(const NormOp& op, const Context&, int workers) {
  return op.accumulate ? static_cast<size_t>(op.dim * workers) * sizeof(float) : 0;
}

void run(const NormOp& op, const Job& job) {
  const Context& device = job.device;
  const auto normalize = op.kind == NormKind::rms ? device.kernels.rms_norm : device.kernels.layer_norm;
  const float *in = device.floats(op.in), *weight = device.vector(op.weight), *bias = device.vector(op.bias);
  constexpr int64_t kRows = 4;
  job.worker.share((op.rows + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(op.rows, (task + 1) * kRows);
    for (int64_t row = task * kRows; row < end; ++row) {
      float* out = device.floats(op.out) + row * op.stride() + op.out_column;
      float* normed = op.accumulate ? device.work.as<float>() + job.worker.index() * op.dim : out;
      normalize(in + row * op.dim, weight, bias, op.eps, op.dim, normed);
      if (op.f32_copy.bytes > 0) std::copy_n(normed, op.dim, device.floats(op.f32_copy) + row * op.dim);
      if (op.accumulate)
        for (int64_t i = 0; i < op.dim; ++i) out[i] += normed[i];
    }
  });
}

}  // namespace ingot::cpu
