#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/ops.h"
#include "collective/parts.h"
#include "core/ceil_div.h"

// What ranks do together. One worker speaks to the others; all of them work on what came.
namespace ingot::cpu {
namespace {

constexpr int64_t kWords = 1024;  // that a worker adds at a time
constexpr int kMostRanks = 4;

std::span<std::byte> bytes_of(void* data, int64_t words) {
  return {static_cast<std::byte*>(data), static_cast<size_t>(words) * sizeof(float)};
}

void count(const Job& job, size_t bytes) {
  job.step.times.wire_bytes += bytes;
  ++job.step.times.wire_messages;
}

// fn(first, last) for pieces of n words.
template <typename Fn>
void share_words(const Job& job, int64_t n, const Fn& fn) {
  job.worker.share(ceil_div(n, kWords), [&](int64_t piece) { fn(piece * kWords, std::min((piece + 1) * kWords, n)); });
}

// Four ranks: each adds one part of `data` for all, (0 + 1) + (2 + 3), then tells the sum to the others, so that three
// quarters of the numbers are sent twice. Theirs lie in pairs as ours do, and the two of a sum may change places.
void sum_in_parts(float* data, float* theirs, int64_t n, const Job& job) {
  Peers& group = *job.device.group;
  const auto part = [&](int rank) { return part_of(n, rank, kMostRanks); };
  const Part mine = part(group.rank());
  const auto exchange = [&](bool sums) {
    if (job.worker.index() == 0) {
      std::array<Exchange, kMostRanks - 1> exchanges;
      for (int other = 1; other < kMostRanks; ++other) {
        const int peer = group.rank() ^ other;
        const Part& out = sums ? mine : part(peer);
        exchanges[static_cast<size_t>(other - 1)] = {peer, bytes_of(data + out.begin, out.size()),
                                                     sums ? bytes_of(data + part(peer).begin, part(peer).size())
                                                          : bytes_of(theirs + (other - 1) * mine.size(), mine.size())};
        count(job, bytes_of(nullptr, out.size()).size());
      }
      group.exchange_all(exchanges);
    }
    job.worker.sync();
  };
  exchange(false);
  const float *second = theirs, *third = theirs + mine.size(), *fourth = theirs + 2 * mine.size();
  float* own = data + mine.begin;
  share_words(job, mine.size(), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) own[i] = (own[i] + second[i]) + (third[i] + fourth[i]);
  });
  exchange(true);
}

}  // namespace

size_t work_bytes(const SumRanksOp& op, const Context&, int) { return bytes_of(nullptr, op.rows * op.dim).size(); }

void run(const SumRanksOp& op, const Job& job) {
  Peers& group = *job.device.group;
  const int64_t n = op.rows * op.dim;
  float *in = job.device.floats(op.in), *out = job.device.floats(op.out), *theirs = job.device.work.as<float>();
  const float* bias = job.device.vector(op.bias);
  const bool two = group.size() == 2;
  if (job.worker.index() == 0) ++job.step.times.collectives;
  if (!two) sum_in_parts(in, theirs, n, job);
  if (two && job.worker.index() == 0) {
    group.exchange(1 - group.rank(), bytes_of(in, n), bytes_of(theirs, n));
    count(job, bytes_of(in, n).size());
  }
  if (two) job.worker.sync();
  job.worker.share(op.rows, [&](int64_t row) {
    for (int64_t at = row * op.dim; at < (row + 1) * op.dim; ++at) {
      float sum = two ? in[at] + theirs[at] : in[at];
      if (bias != nullptr) sum += bias[at - row * op.dim];
      out[at] = op.accumulate ? out[at] + sum : sum;
    }
  });
}

size_t work_bytes(const GatherRanksOp& op, const Context& device, int) {
  return device.group->rank() == 0 ? bytes_of(nullptr, op.rows * op.dim).size() : 0;
}

void run(const GatherRanksOp& op, const Job& job) {
  Peers& group = *job.device.group;
  const int ranks = group.size();
  const auto first_column = [&](int rank) { return part_of(op.dim, rank, ranks).begin; };
  const auto width = [&](int rank) { return part_of(op.dim, rank, ranks).size(); };
  float *mine = job.device.floats(op.in), *theirs = job.device.work.as<float>();
  if (job.worker.index() == 0) ++job.step.times.collectives;
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
  Peers& group = *job.device.group;
  if (job.worker.index() == 0) {
    ++job.step.times.collectives;
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
