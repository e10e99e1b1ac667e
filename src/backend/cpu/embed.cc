#include <algorithm>

#include "backend/cpu/ops.h"

namespace ingot::cpu {

size_t work_bytes(const EmbedOp& op, const Context& device, int workers) {
  return op.position_table ? static_cast<size_t>(device.matrix(op.table).cols() * workers) * sizeof(float) : 0;
}

void run(const EmbedOp& op, const Job& job) {
  const Context& device = job.device;
  const StepView& view = job.step.view;
  const PackedMatrix& table = device.matrix(op.table);
  const int64_t hidden = table.cols();
  float* extra = device.work.as<float>() + job.worker.index() * hidden;
  job.worker.share(view.step().tokens, [&](int64_t row) {
    int64_t token = view.token_ids()[row];
    if (token < 0) token = device.sampler ? device.sampler->previous_token(job.step.number, -1 - token) : 0;
    float* out = device.floats(op.out) + row * hidden;
    if (op.first >= 0) {
      token -= op.first;
      if (token < 0 || token >= table.rows()) {
        std::fill_n(out, hidden, 0.0f);
        return;
      }
    }
    unpack_row(table, std::min(token, table.rows() - 1), out);
    if (op.scale != 1.0f)
      for (int64_t i = 0; i < hidden; ++i) out[i] *= op.scale;
    if (op.position_table) {
      const PackedMatrix& positions = device.matrix(op.position_table);
      unpack_row(positions, std::min<int64_t>(view.positions()[row], positions.rows() - 1), extra);
      for (int64_t i = 0; i < hidden; ++i) out[i] += extra[i];
    }
  });
}

void run(const ReadRowsOp& op, const Job& job) {
  const StepView& view = job.step.view;
  job.worker.share(op.rows, [&](int64_t row) {
    op.table->read(view.token_ids()[row], view.positions()[row], op.scale, job.device.floats(op.out) + row * op.dim);
  });
  if (job.worker.index() == 0) op.table->drop();
}

}  // namespace ingot::cpu
