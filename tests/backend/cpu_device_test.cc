#include "backend/cpu/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "backend/cpu/memory.h"
#include "core/error.h"
#include "core/memory.h"
#include "counting_new.h"
#include "formats/block_quant.h"
#include "harness.h"

namespace ingot::test {
namespace {

// A model of one layer: the token's embedding goes through attention and a head that makes token t answer t + 1.
class CpuDevice : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 64, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadSize = 16, kRows = 32;

  CpuDevice() : device_(make_cpu_backend({.threads = 2, .isa = "", .drop_pages = {}})) {
    std::vector<float> one_hot(kVocab * kHidden, 0.0f), shifted(kVocab * kHidden, 0.0f);
    for (int64_t i = 0; i < kVocab; ++i) {
      one_hot[static_cast<size_t>(i * kHidden + i)] = 1.0f;
      shifted[static_cast<size_t>((i + 1) % kVocab * kHidden + i)] = 1.0f;
    }
    table_ = load("embed", one_hot, kVocab, kHidden);
    head_ = load("head", shifted, kVocab, kHidden);
    const int64_t qkv_rows = (kHeads + 2 * kKvHeads) * kHeadSize;
    std::mt19937 random(3);
    qkv_weight_ = load("qkv", random_floats(random, static_cast<size_t>(qkv_rows * kHidden)), qkv_rows, kHidden);
    o_weight_ = load("o", std::vector<float>(kHidden * kHidden, 0.0f), kHidden, kHidden);
    norm_weight_ = device_->load_vector("norm", std::vector<float>(kHidden, 1.0f));
    freqs_ = device_->load_vector("freqs", std::vector<float>(kHeadSize / 2, 0.1f));
    RegionPlan plan;
    residual_ = plan.take(kRows * kHidden);
    normed_ = plan.take(kRows * kHidden);
    qkv_ = plan.take(static_cast<size_t>(kRows * qkv_rows));
    rope_ = plan.take(kRows * kHeadSize);
    attended_ = plan.take(kRows * kHidden);
    gathered_ = plan.take(kRows * kHidden);
    logits_ = plan.take(kRows * kVocab);
    device_->create_scratch(plan.bytes());
    KvLayout kv;
    kv.layers = 1;
    kv.num_blocks = 16;
    kv.kv_heads = kKvHeads;
    kv.head_size = kHeadSize;
    device_->create_kv_cache(kv);
    device_->create_sampler({4, 128, kVocab});
    layout_ = OutputLayout::of(kRows, 4, 2, kVocab);
    device_->create_io(1 << 16, layout_);
  }

  WeightId load(const std::string& name, const std::vector<float>& values, int64_t rows, int64_t cols) {
    const TensorView tensor{name, DType::f32, {rows, cols}, std::as_bytes(std::span(values))};
    return device_->load_matrix({name, {{&tensor, 0}}, rows, cols});
  }

  // One decode row at `position` with this token id.
  TestStep decode(int32_t token, int32_t position, int ring) const {
    TestStep step;
    step.ring = ring;
    step.add_rows({3, 7}, 16, position, 1, true);
    step.token_ids[0] = token;
    SamplingParams greedy;
    greedy.temperature = 0.0f;
    step.add_sample(0, greedy);
    return step;
  }

  void encode(const StagedStep& staged) {
    device_->begin(staged);
    device_->encode(EmbedOp{table_, {}, 1.0f, residual_});
    device_->encode(RopeTableOp{freqs_, 1.0f, rope_});
    device_->encode(NormOp{NormKind::rms, 1e-5f, staged.tokens, kHidden, residual_, norm_weight_, {}, normed_});
    device_->encode(LinearOp{.rows = staged.tokens, .in = normed_, .weight = qkv_weight_, .out = qkv_});
    AttentionOp attend{
        .shape = {kHeads, kKvHeads, kHeadSize, 0.25f, 0, kHeadSize}, .qkv = qkv_, .rope = rope_, .out = attended_};
    for (const auto part : {AttentionOp::Part::decode, AttentionOp::Part::prefill_write, AttentionOp::Part::prefill}) {
      attend.part = part;
      device_->encode(attend);
    }
    device_->encode(
        LinearOp{.rows = staged.tokens, .in = attended_, .weight = o_weight_, .out = residual_, .accumulate = true});
    device_->encode(GatherRowsOp{kHidden, residual_, gathered_});
    device_->encode(
        LinearOp{.rows = staged.samples, .in = gathered_, .weight = head_, .out = logits_, .f32_out = true});
    device_->encode(SampleOp{logits_, kVocab});
  }
  void submit(const TestStep& step) {
    encode(step.stage(*device_));
    device_->submit();
  }
  int32_t token(int ring, int row = 0) {
    return reinterpret_cast<const int32_t*>(device_->output(ring).data() + layout_.tokens)[row];
  }

  std::unique_ptr<Backend> device_;
  OutputLayout layout_;
  WeightId table_, head_, qkv_weight_, o_weight_, norm_weight_, freqs_;
  Region residual_, normed_, qkv_, rope_, attended_, gathered_, logits_;
};

TEST_F(CpuDevice, RunsAStep) {
  submit(decode(5, 0, 0));
  const StepTimes times = device_->wait(0);
  EXPECT_EQ(token(0), 6);
  EXPECT_GT(times.run_us, 0.0);
  EXPECT_EQ(times.gap_us, 0.0);
  EXPECT_GT(times.weight_bytes, size_t{kVocab * kHidden * 4});
  EXPECT_EQ(times.kv_bytes, size_t{2 * kKvHeads * kHeadSize * 2});
  submit(decode(5, 1, 1));
  EXPECT_GT(device_->wait(1).gap_us, 0.0);
}

// By the probe that everything else asks, which knows what is free and what this process may have: not all that the
// machine has.
TEST_F(CpuDevice, TellsTheMemoryThatIsFree) {
  constexpr uint64_t kOthers = uint64_t{256} << 20;  // that other processes may take or give meanwhile
  const uint64_t before = available_memory_bytes();
  const uint64_t told = make_cpu_backend({.threads = 1, .isa = "", .drop_pages = {}})->info().memory_bytes;
  const uint64_t after = available_memory_bytes();
  EXPECT_GE(told + kOthers, std::min(before, after));
  EXPECT_LE(told, std::max(before, after) + kOthers);
}

TEST_F(CpuDevice, TwoStepsInFlightChainTheirTokens) {
  submit(decode(10, 0, 0));
  for (int i = 1; i < 20; ++i) {
    submit(decode(-1, i, i % 2));  // what row 0 of the step before sampled
    device_->wait((i - 1) % 2);
    EXPECT_EQ(token((i - 1) % 2), 10 + i);
  }
  device_->wait(1);
  EXPECT_EQ(token(1), 30);
}

TEST_F(CpuDevice, NegativeIdsNameTheRow) {
  TestStep first;
  for (int32_t s = 0; s < 3; ++s) first.add_rows({s}, 16, 0, 1, true);
  first.token_ids = {20, 30, 40};
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  for (int32_t row = 0; row < 3; ++row) first.add_sample(row, greedy);
  TestStep second = first;
  second.ring = 1;
  second.token_ids = {-3, -1, -2};
  second.positions = {1, 1, 1};
  submit(first);
  submit(second);
  device_->wait(0);
  device_->wait(1);
  EXPECT_EQ(token(1, 0), 42);
  EXPECT_EQ(token(1, 1), 22);
  EXPECT_EQ(token(1, 2), 32);
}

TEST_F(CpuDevice, AFailedStepLeavesTheDeviceWorking) {
  submit(decode(5, 0, 0));
  device_->inject_failure();
  device_->wait(0);
  submit(decode(7, 1, 1));
  submit(decode(9, 1, 0));
  try {
    device_->wait(1);
    FAIL() << "the injected failure was not reported";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::device);
  }
  device_->wait(0);
  EXPECT_EQ(token(0), 10);
  submit(decode(11, 2, 1));
  device_->wait(1);
  EXPECT_EQ(token(1), 12);
}

TEST_F(CpuDevice, CountsWhatHappens) {
  const DeviceCounters before = device_->counters();
  const TestStep step = decode(5, 0, 0);
  const StagedStep staged = step.stage(*device_);
  encode(staged);
  const DeviceCounters encoded = device_->counters();
  EXPECT_EQ(encoded.submissions, before.submissions);
  EXPECT_EQ(encoded.waits, before.waits);
  EXPECT_EQ(encoded.readbacks, before.readbacks);
  EXPECT_EQ(encoded.allocations, before.allocations);
  EXPECT_EQ(encoded.dispatches, before.dispatches + 9);  // the prefill operations have no rows
  device_->submit();
  device_->wait(0);
  token(0);
  const DeviceCounters after = device_->counters();
  EXPECT_EQ(after.submissions, before.submissions + 1);
  EXPECT_EQ(after.waits, before.waits + 1);
  EXPECT_EQ(after.readbacks, before.readbacks + 1);
  EXPECT_GT(before.allocations, 0u);
}

TEST_F(CpuDevice, AStepAllocatesNothing) {
  const StagedStep staged = decode(5, 0, 0).stage(*device_);
  if (!can_count_allocations()) GTEST_SKIP() << "this build has another operator new";
  start_counting_allocations();
  encode(staged);
  device_->submit();
  device_->wait(0);
  EXPECT_EQ(stop_counting_allocations(), 0);
  start_counting_allocations();
  const std::vector<int> one(1);
  EXPECT_EQ(stop_counting_allocations(), 1) << "the counter itself must work";
}

TEST_F(CpuDevice, RefusesMisuse) {
  EXPECT_THROW(device_->submit(), Error);
  EXPECT_THROW(device_->wait(0), Error);
  EXPECT_THROW(device_->encode(NormOp{NormKind::rms, 1e-5f, 1, kHidden, residual_, norm_weight_, {}, normed_}), Error);
  const StagedStep staged = decode(5, 0, 0).stage(*device_);
  device_->begin(staged);
  EXPECT_THROW(device_->encode(NormOp{NormKind::rms, 1e-5f, 1000, kHidden, residual_, norm_weight_, {}, normed_}),
               Error);
  EXPECT_THROW(device_->encode(NormOp{NormKind::rms, 1e-5f, 1, kHidden, residual_, WeightId{99}, {}, normed_}), Error);
  EXPECT_THROW(device_->encode(NormOp{NormKind::rms, 1e-5f, 1, kHidden, residual_, head_, {}, normed_}), Error);
  submit(decode(5, 0, 0));                      // an abandoned step does not stop the next
  EXPECT_THROW(device_->begin(staged), Error);  // the ring is in flight
  std::vector<std::byte> bytes(64);
  EXPECT_THROW(device_->read_scratch(residual_, bytes), Error);
  device_->wait(0);
  EXPECT_EQ(token(0), 6);
}

TEST_F(CpuDevice, Declines) {
  ModelShape model{.heads = 8, .kv_heads = 4, .head_size = 64, .rope_dims = 64};
  KvLayout kv;
  kv.head_size = 64;
  EXPECT_EQ(device_->decline(model, kv), std::nullopt);
  const auto declined = [&](auto change) {
    ModelShape m = model;
    KvLayout k = kv;
    change(m, k);
    return device_->decline(m, k).has_value();
  };
  EXPECT_TRUE(declined([](ModelShape& m, KvLayout&) { m.head_size = 60; }));
  EXPECT_TRUE(declined([](ModelShape& m, KvLayout&) { m.head_size = 576; }));
  EXPECT_TRUE(declined([](ModelShape& m, KvLayout&) { m.kv_heads = 3; }));
  EXPECT_TRUE(declined([](ModelShape& m, KvLayout&) { m.rope_dims = 128; }));
  EXPECT_TRUE(declined([](ModelShape&, KvLayout& k) { k.block_size = 12; }));
}

// The matrices of two models that are loaded at once lie in one region, and none on another.
TEST_F(CpuDevice, WeightsOfTwoModelsDoNotOverlap) {
  constexpr size_t kBytes = size_t{100} << 10;
  std::vector<std::shared_ptr<std::byte>> kept[2];
  const auto load = [&](int model) {
    for (int i = 0; i < 20; ++i) {
      kept[model].push_back(cpu::allocate_weights(kBytes));
      std::fill_n(kept[model].back().get(), kBytes, static_cast<std::byte>(100 * model + i));
    }
  };
  std::thread other(load, 1);
  load(0);
  other.join();
  for (int model = 0; model < 2; ++model)
    for (int i = 0; i < 20; ++i) {
      const std::byte* p = kept[model][static_cast<size_t>(i)].get();
      EXPECT_EQ(std::count(p, p + kBytes, static_cast<std::byte>(100 * model + i)), static_cast<int64_t>(kBytes));
    }
}

}  // namespace
}  // namespace ingot::test
