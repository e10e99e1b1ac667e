// What ranks do together, on every device that can: threads stand for processes, sizes are odd, and sums are compared
// bit for bit with the one order there is.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "backend/cpu/device.h"
#include "backend/metal/device.h"
#include "collective/parts.h"
#include "engine/thread_group.h"
#include "harness.h"

namespace ingot::test {
namespace {

std::unique_ptr<Backend> make_rank(const std::string& name, Group& group, int tp) {
  if (name == "cpu") {
    CpuOptions options;
    options.threads = 2;
    options.group = &group;
    options.tp = tp;
    return make_cpu_backend(options);
  }
  MetalOptions options;
  options.group = &group;
  options.tp = tp;
  return make_metal_backend(options);
}

// One that is called where the GPU's stream is, as NCCL would be, instead of by a thread of the device.
class StreamGroup final : public testing::ThreadGroup {
 public:
  using ThreadGroup::ThreadGroup;
  bool on_stream() const override { return true; }
};

class RankOps : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  const std::string& device() const { return std::get<0>(GetParam()); }
  int ranks() const { return std::get<1>(GetParam()); }

  // use(device, rank) of every rank, each on a thread.
  void together(int tp, const std::function<void(Backend&, int)>& use) {
    const std::vector<std::shared_ptr<Group>> groups = device() == "metal_stream"
                                                           ? testing::ThreadGroup::make<StreamGroup>(ranks())
                                                           : testing::ThreadGroup::make(ranks());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks(); ++rank)
      threads.emplace_back([&, rank] {
        try {
          const std::unique_ptr<Backend> own = make_rank(device(), *groups[static_cast<size_t>(rank)], tp);
          use(*own, rank);
        } catch (const std::exception& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
          std::abort();  // the others would wait for it
        }
      });
    for (std::thread& thread : threads) thread.join();
  }
  std::vector<std::vector<float>> numbers(size_t n, uint32_t seed) const {
    std::vector<std::vector<float>> all;
    for (int rank = 0; rank < ranks(); ++rank) {
      std::mt19937 random(seed + static_cast<uint32_t>(rank));
      all.push_back(random_floats(random, n, 3.0f));
    }
    return all;
  }
};

void expect_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0) << what;
}

TEST_P(RankOps, SumInTheOneOrder) {
  for (const bool accumulate : {false, true}) {
    constexpr int64_t kRows = 3, kDim = 37;  // 111 numbers do not divide by four
    constexpr size_t kCount = kRows * kDim;
    const std::vector<std::vector<float>> in = numbers(kCount, 1);
    std::mt19937 random(9);
    const std::vector<float> bias = random_floats(random, kDim), residual = random_floats(random, kCount, 5.0f);
    std::vector<float> want(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      float sum = in[0][i] + in[1][i];
      if (ranks() == 4) sum = sum + (in[2][i] + in[3][i]);
      sum += bias[i % kDim];
      want[i] = accumulate ? residual[i] + sum : sum;
    }
    together(ranks(), [&](Backend& own, int rank) {
      RegionPlan plan;
      SumRanksOp op{.rows = kRows, .dim = kDim, .in = plan.take(kCount), .out = plan.take(kCount)};
      op.accumulate = accumulate;
      own.create_scratch(plan.bytes());
      own.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      op.bias = own.load_vector("bias", bias);
      put(own, op.in, in[static_cast<size_t>(rank)], true);
      put(own, op.out, residual, true);
      run_step(own, {}, [&] { own.encode(op); });
      expect_bits(get(own, op.out, kCount, true), want, "rank " + std::to_string(rank));
    });
  }
}

TEST_P(RankOps, GatherColumnsOnRankZero) {
  constexpr int64_t kRows = 3, kDim = 45;
  const std::vector<std::vector<float>> in = numbers(kRows * kDim, 3);
  together(ranks(), [&](Backend& own, int rank) {
    const Part part = part_of(kDim, rank, ranks());
    RegionPlan plan;
    GatherRanksOp op{.rows = kRows, .dim = kDim, .width = part.size(), .in = plan.take(kRows * kDim)};
    if (rank == 0) op.out = plan.take(kRows * kDim);
    own.create_scratch(plan.bytes());
    own.create_io(4096, OutputLayout::of(1, 1, 1, 16));
    put(own, op.in, std::span(in[static_cast<size_t>(rank)]).first(static_cast<size_t>(kRows * part.size())), true);
    run_step(own, {}, [&] { own.encode(op); });
    if (rank != 0) return;
    std::vector<float> want;
    for (int64_t row = 0; row < kRows; ++row)
      for (int from = 0; from < ranks(); ++from) {
        const int64_t width = part_of(kDim, from, ranks()).size();
        const float* numbers = &in[static_cast<size_t>(from)][static_cast<size_t>(row * width)];
        want.insert(want.end(), numbers, numbers + width);
      }
    expect_bits(get(own, op.out, kRows * kDim, true), want, "rank 0");
  });
}

// Stages of one rank each: every one adds nothing and hands on.
TEST_P(RankOps, RowsGoFromStageToStage) {
  constexpr int64_t kRows = 3, kDim = 37;
  constexpr size_t kCount = kRows * kDim;
  const std::vector<float> want = numbers(kCount, 5)[0];
  together(1, [&](Backend& own, int rank) {
    RegionPlan plan;
    const Region rows = plan.take(kCount);
    own.create_scratch(plan.bytes());
    own.create_io(4096, OutputLayout::of(1, 1, 1, 16));
    put(own, rows, rank == 0 ? want : std::vector<float>(kCount), true);
    run_step(own, {}, [&] {
      if (rank > 0) own.encode(ReceiveRowsOp{.rows = kRows, .dim = kDim, .out = rows});
      if (rank + 1 < ranks()) own.encode(SendRowsOp{.rows = kRows, .dim = kDim, .in = rows});
    });
    expect_bits(get(own, rows, kCount, true), want, "stage " + std::to_string(rank));
  });
}

// Of a stage that leaves the embedding in the model's file. What was read is dropped once, when all of it was.
TEST_P(RankOps, RowsAreReadWhereTheyAreStored) {
  constexpr int kDim = 37;
  struct Table final : RowTable {
    void read(int64_t token, int64_t position, float scale, float* out) const override {
      for (int i = 0; i < kDim; ++i) out[i] = scale * static_cast<float>(1000 * token + 10 * position + i);
      ++unread;
    }
    void drop() const override { dropped_after = unread.exchange(0); }
    mutable std::atomic<int> unread = 0, dropped_after = 0;
  };
  TestStep step;
  for (int32_t t = 0; t < 5; ++t) {
    step.token_ids.push_back(7 * t + 1);
    step.positions.push_back(9 - t);
    step.slots.push_back(0);
  }
  std::vector<float> want;
  for (size_t t = 0; t < 5; ++t)
    for (int i = 0; i < kDim; ++i)
      want.push_back(1.5f * static_cast<float>(1000 * step.token_ids[t] + 10 * step.positions[t] + i));
  together(1, [&](Backend& own, int rank) {
    const Table table;
    RegionPlan plan;
    const ReadRowsOp op{.table = &table, .scale = 1.5f, .rows = 5, .dim = kDim, .out = plan.take(want.size())};
    own.create_scratch(plan.bytes());
    own.create_io(4096, OutputLayout::of(1, 1, 1, 16));
    run_step(own, step, [&] { own.encode(op); });
    expect_bits(get(own, op.out, want.size(), true), want, "rank " + std::to_string(rank));
    EXPECT_EQ(table.dropped_after, 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, RankOps,
                         ::testing::Combine(::testing::Values("cpu", "metal", "metal_stream"), ::testing::Values(2, 4)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace ingot::test
