#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "conformance.h"
#include "harness.h"
#include "step/output.h"

namespace ingot::test {
namespace {

constexpr PoolOp::Kind kPoolKinds[] = {PoolOp::Kind::last, PoolOp::Kind::mean, PoolOp::Kind::first};
const char* pool_kind_name(PoolOp::Kind kind) {
  return kind == PoolOp::Kind::last ? "last" : kind == PoolOp::Kind::mean ? "mean" : "first";
}

// Regions for `rows` rows and `sequences` sequences; two slots more than sequences.
PoolOp plan_pool(RegionPlan& plan, PoolOp::Kind kind, bool normalize, int64_t rows, int64_t sequences, int64_t dim) {
  PoolOp op{.kind = kind, .normalize = normalize, .sequences = sequences, .slots = sequences + 2, .dim = dim};
  op.in = plan.take(static_cast<size_t>(rows * dim));
  op.kept = plan.take(static_cast<size_t>(op.slots * dim));
  return op;
}

OutputLayout outputs_of(const PoolOp& op) {
  return OutputLayout::of(1, 1, 1, 16, static_cast<int32_t>(op.sequences), op.dim);
}

// All vectors of the last step, one after the other.
std::vector<float> vectors_of(Backend& backend, const PoolOp& op) {
  std::vector<float> all;
  for (const std::vector<float>& one :
       read_pooled(outputs_of(op), backend.output(0), static_cast<size_t>(op.sequences)))
    all.insert(all.end(), one.begin(), one.end());
  return all;
}

// A step of so many rows that pools these sequences.
void pool(Backend& backend, PoolOp op, size_t rows, const std::vector<PooledRows>& sequences) {
  TestStep step;
  step.token_ids.assign(rows, 0);
  step.positions.assign(rows, 0);
  step.slots.assign(rows, 0);
  StagedStep staged = step.stage(backend);
  // The lists of a step are words of any number: three of another one come first.
  op.sequences = static_cast<int64_t>(sequences.size());
  op.pooled = static_cast<int32_t>((staged.bytes - staged.pool) / 4 + 3);
  const size_t bytes = sequences.size() * sizeof(PooledRows);
  std::memset(backend.stage(0).data() + staged.bytes, 0xff, 12);
  std::memcpy(backend.stage(0).data() + staged.bytes + 12, sequences.data(), bytes);
  staged.bytes += 12 + bytes;
  staged.pooled = static_cast<int32_t>(op.sequences);
  backend.rehearse(staged, [&] { backend.encode(op); });
  backend.begin(staged);
  backend.encode(op);
  backend.submit();
  backend.wait(0);
}

TEST_P(Conformance, Pool) {
  // 1 + 13 + 2 + 24 rows, and 3 of a sequence that is not pooled in between.
  const std::vector<PooledRows> sequences = {{0, 1, 0, 2}, {1, 13, 0, 5}, {17, 2, 0, 0}, {19, 24, 0, 1}};
  constexpr size_t kRows = 43;
  for (PoolOp::Kind kind : kPoolKinds)
    for (bool normalize : {false, true})
      for (int64_t dim : {1, 7, 64, 257, 576, 1100}) {
        SetUp();
        RegionPlan plan;
        const PoolOp op = plan_pool(plan, kind, normalize, kRows, 4, dim);
        std::vector<float> in = random_floats(random_, kRows * static_cast<size_t>(dim), 3.0f);
        // The third sequence is of zeros: they have no direction, and stay zeros.
        std::fill_n(in.begin() + 17 * dim, 2 * dim, 0.0f);
        both([&](Backend& backend) {
          backend.create_scratch(plan.bytes());
          backend.create_io(4096, outputs_of(op));
          put(backend, op.in, in, true);
          pool(backend, op, kRows, sequences);
        });
        // Sums of 24 rows, and of up to 1,100 squares, half of whose error a length has.
        const double limit = normalize ? 4e-6 : kind == PoolOp::Kind::mean ? 2e-6 : 0.0;
        expect_near(vectors_of(*device_, op), vectors_of(*reference_, op), limit,
                    fmt::format("{} of {} columns{}", pool_kind_name(kind), dim, normalize ? ", normalized" : ""));
      }
}

// However a prompt is cut into steps, wherever its rows lie in them and whatever was in its slot before: the same bits.
TEST_P(Conformance, PoolOfCutPrompts) {
  constexpr int32_t kRows = 37, kDim = 150;
  const std::vector<float> in = random_floats(random_, kRows * kDim, 3.0f);
  const std::vector<std::vector<int32_t>> cuts = {{37}, {1, 36}, {36, 1}, {5, 16, 16}, std::vector<int32_t>(kRows, 1)};
  for (PoolOp::Kind kind : kPoolKinds)
    for (bool normalize : {true, false}) {
      SetUp();
      RegionPlan plan;
      const PoolOp op = plan_pool(plan, kind, normalize, kRows + 4, 2, kDim);
      device_->create_scratch(plan.bytes());
      device_->create_io(4096, outputs_of(op));
      put(*device_, op.kept, std::vector<float>(static_cast<size_t>(op.slots * kDim), 1e9f), true);
      std::vector<float> whole;
      for (size_t way = 0; way < cuts.size(); ++way) {
        const auto slot = static_cast<int32_t>(way % 3);
        int32_t before = 0;
        for (const int32_t rows : cuts[way]) {
          // A neighbour of its own comes first: one that goes on and on in the last slot.
          const int32_t neighbours = before % 4 + 1;
          std::vector<float> step = random_floats(random_, static_cast<size_t>(neighbours * kDim), 100.0f);
          step.insert(step.end(), in.begin() + before * kDim, in.begin() + (before + rows) * kDim);
          put(*device_, op.in, step, true);
          pool(*device_, op, static_cast<size_t>(neighbours + rows),
               {{0, neighbours, before, 3}, {neighbours, rows, before, slot}});
          before += rows;
        }
        const std::vector<float> both = vectors_of(*device_, op);
        const std::vector<float> got(both.begin() + kDim, both.end());
        if (way == 0) whole = got;
        EXPECT_EQ(got, whole) << pool_kind_name(kind) << ", cut in " << cuts[way].size();
      }
    }
}

}  // namespace
}  // namespace ingot::test
