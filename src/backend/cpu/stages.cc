#include "backend/cpu/ops.h"
#include "step/output.h"

// What the stages of a model do together. One worker speaks to the others.
namespace ingot::cpu {
namespace {

std::span<std::byte> rows_at(float* data, int64_t words) {
  return {reinterpret_cast<std::byte*>(data), static_cast<size_t>(words) * sizeof(float)};
}

void count_sent(const Job& job, size_t bytes) {
  job.step.times.wire_bytes += bytes;
  ++job.step.times.wire_messages;
}

}  // namespace

void run(const SendRowsOp& op, const Job& job) {
  if (job.worker.index() == 0) {
    const std::span<const std::byte> rows = rows_at(job.device.floats(op.in), op.rows * op.dim);
    job.device.stages->send(job.device.stages->rank() + 1, rows);
    count_sent(job, rows.size());
  }
  job.worker.sync();
}

void run(const ReceiveRowsOp& op, const Job& job) {
  if (job.worker.index() == 0)
    job.device.stages->receive(job.device.stages->rank() - 1, rows_at(job.device.floats(op.out), op.rows * op.dim));
  job.worker.sync();
}

void run(const SendOutputOp&, const Job& job) {
  if (job.worker.index() == 0) {
    const StagedStep& step = job.step.view.step();
    const OutputCounts counts = OutputCounts::of({job.step.view.sampling(), static_cast<size_t>(step.samples)},
                                                 static_cast<size_t>(step.pooled));
    pack_output(*job.step.layout, counts, job.step.output);
    const size_t bytes = counts.packed_bytes(*job.step.layout);
    job.device.all->answer({job.step.output, bytes});
    count_sent(job, bytes);
  }
  job.worker.sync();
}

}  // namespace ingot::cpu
