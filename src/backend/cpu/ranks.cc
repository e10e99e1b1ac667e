#include <algorithm>
#include <cstring>

#include "backend/cpu/ops.h"
#include "core/ceil_div.h"

// What ranks do together. One worker speaks to the others; all of them work on what came.
namespace ingot::cpu {
namespace {

constexpr int64_t kColumns = 1024;  // that a worker adds at a time

std::span<std::byte> bytes_of(void* data, int64_t words) {
  return {static_cast<std::byte*>(data), static_cast<size_t>(words) * sizeof(float)};
}

void count(const Job& job, size_t bytes) {
  job.step.times.wire_bytes += bytes;
  ++job.step.times.wire_messages;
}

}  // namespace

size_t work_bytes(const SumRanksOp& op, const Context&, int) { return bytes_of(nullptr, op.rows * op.dim).size(); }

// With the neighbour, then with the neighbours of both: every rank adds the same numbers in the same pairs.
void run(const SumRanksOp& op, const Job& job) {
  Group& group = *job.device.group;
  const int64_t n = op.rows * op.dim;
  float *in = job.device.floats(op.in), *out = job.device.floats(op.out), *theirs = job.device.work.as<float>();
  const float* bias = job.device.vector(op.bias);
  for (int distance = 1; distance < group.size(); distance *= 2) {
    if (job.worker.index() == 0) {
      group.exchange(group.rank() ^ distance, bytes_of(in, n), bytes_of(theirs, n));
      count(job, bytes_of(in, n).size());
    }
    job.worker.sync();
    const bool last = 2 * distance == group.size();
    const int64_t pieces = ceil_div(op.dim, kColumns);
    job.worker.share(op.rows * pieces, [&](int64_t task) {
      const int64_t row = task / pieces * op.dim, first = task % pieces * kColumns;
      for (int64_t i = first; i < std::min(first + kColumns, op.dim); ++i) {
        float sum = in[row + i] + theirs[row + i];
        if (last && bias != nullptr) sum += bias[i];
        if (!last)
          in[row + i] = sum;
        else
          out[row + i] = op.accumulate ? out[row + i] + sum : sum;
      }
    });
  }
}

size_t work_bytes(const GatherRanksOp& op, const Context& device, int) {
  return device.group->rank() == 0 ? bytes_of(nullptr, op.rows * op.dim).size() : 0;
}

void run(const GatherRanksOp& op, const Job& job) {
  Group& group = *job.device.group;
  const int ranks = group.size();
  const auto first_column = [&](int rank) { return op.dim * rank / ranks; };
  const auto width = [&](int rank) { return first_column(rank + 1) - first_column(rank); };
  float *mine = job.device.floats(op.in), *theirs = job.device.work.as<float>();
  if (group.rank() != 0) {
    const std::span<std::byte> bytes = bytes_of(mine, op.rows * width(group.rank()));
    if (job.worker.index() == 0) {
      group.send(0, bytes);
      count(job, bytes.size());
    }
    job.worker.sync();
    return;
  }
  if (job.worker.index() == 0)
    for (int rank = 1; rank < ranks; ++rank)
      group.receive(rank, bytes_of(theirs + op.rows * first_column(rank), op.rows * width(rank)));
  job.worker.sync();
  job.worker.share(op.rows * ranks, [&](int64_t task) {
    const int64_t row = task / ranks;
    const int rank = static_cast<int>(task % ranks);
    const float* from = rank == 0 ? mine : theirs + op.rows * first_column(rank);
    std::memcpy(job.device.floats(op.out) + row * op.dim + first_column(rank), from + row * width(rank),
                static_cast<size_t>(width(rank)) * sizeof(float));
  });
}

void run(const ShareTokensOp&, const Job& job) {
  Group& group = *job.device.group;
  if (job.worker.index() == 0) {
    const std::span<std::byte> tokens =
        bytes_of(job.device.sampler->tokens(job.step.number), job.step.view.step().samples);
    for (int rank = 1; group.rank() == 0 && rank < group.size(); ++rank) {
      group.send(rank, tokens);
      count(job, tokens.size());
    }
    if (group.rank() != 0) group.receive(0, tokens);
  }
  job.worker.sync();
}

}  // namespace ingot::cpu
