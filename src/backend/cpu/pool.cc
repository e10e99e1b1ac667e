#include <algorithm>
#include <cmath>

#include "backend/cpu/ops.h"
#include "core/ceil_div.h"

namespace ingot::cpu {
namespace {

constexpr int64_t kPoolColumns = 256;  // of a task: workers share a long sequence too
constexpr float kShortest = 1e-12f;    // that a vector's length is taken for

}  // namespace

void run(const PoolOp& op, const Job& job) {
  const Context& device = job.device;
  const auto* pooled = reinterpret_cast<const PooledRows*>(job.step.view.pool() + op.pooled);
  float* const vectors = reinterpret_cast<float*>(job.step.output + job.step.layout->pooled);
  const bool keeps = op.kind != PoolOp::Kind::last;
  const int64_t parts = ceil_div(op.dim, kPoolColumns);
  job.worker.share(op.sequences * parts, [&](int64_t task) {
    const int64_t sequence = task / parts, column = task % parts * kPoolColumns;
    const int64_t columns = std::min(kPoolColumns, op.dim - column);
    const PooledRows& rows = pooled[sequence];
    int64_t begin = rows.first, end = begin + rows.count;
    if (op.kind == PoolOp::Kind::last) begin = end - 1;
    if (op.kind == PoolOp::Kind::first) end = rows.before > 0 ? begin : begin + 1;
    float* out = vectors + sequence * op.dim + column;
    float* kept = keeps ? device.floats(op.kept) + rows.slot * op.dim + column : nullptr;
    if (keeps && rows.before > 0)
      std::copy_n(kept, columns, out);
    else
      std::fill_n(out, columns, 0.0f);
    for (int64_t row = begin; row < end; ++row) {
      const float* in = device.floats(op.in) + row * op.dim + column;
      for (int64_t i = 0; i < columns; ++i) out[i] += in[i];
    }
    if (keeps) std::copy_n(out, columns, kept);
    if (op.kind == PoolOp::Kind::mean)
      for (int64_t i = 0; i < columns; ++i) out[i] /= static_cast<float>(rows.before + rows.count);
  });
  if (!op.normalize) return;
  job.worker.share(op.sequences, [&](int64_t sequence) {
    float* out = vectors + sequence * op.dim;
    float squares = 0.0f;
    for (int64_t i = 0; i < op.dim; ++i) squares += out[i] * out[i];
    const float length = std::max(std::sqrt(squares), kShortest);
    for (int64_t i = 0; i < op.dim; ++i) out[i] /= length;
  });
}

}  // namespace ingot::cpu
