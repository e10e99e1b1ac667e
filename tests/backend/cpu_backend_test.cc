#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "counting_new.h"
#include "formats/block_quant.h"
#include "harness.h"

namespace ingot::test {
namespace {

// A model of one layer: the token's embedding goes through attention and a head that makes token t answer t + 1.
class CpuBackendTest : public testing::Test {
 protected:
  static constexpr int64_t kVocab = 64, kHidden = 64, kHeads = 4, kKvHeads = 2, kHeadSize = 16, kRows = 32;

  CpuBackendTest() : device_(make_cpu_backend({.threads = 2, .isa = "", .drop_pages = {}})) {
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
    layout_ = OutputLayout::plan(kRows, 4, 2, kVocab);
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
    device_->embed({table_, {}, 1.0f, residual_});
    device_->rope_table({freqs_, 1.0f, rope_});
    device_->norm({NormKind::rms, 1e-5f, staged.tokens, kHidden, residual_, norm_weight_, {}, normed_});
    device_->linear({staged.tokens, normed_, qkv_weight_, {}, qkv_, false, false});
    const AttentionShape shape{kHeads, kKvHeads, kHeadSize, 0.25f, 0, kHeadSize};
    device_->decode_attention({0, shape, qkv_, rope_, {}, {}, 1e-6f, attended_});
    device_->prefill_write({0, shape, qkv_, rope_, {}, {}, 1e-6f});
    device_->prefill_attention({0, shape, qkv_, attended_});
    device_->linear({staged.tokens, attended_, o_weight_, {}, residual_, true, false});
    device_->gather_rows({kHidden, residual_, gathered_});
    device_->linear({staged.samples, gathered_, head_, {}, logits_, false, true});
    device_->sample({logits_, kVocab});
  }
  void submit(const TestStep& step) {
    encode(step.stage(*device_));
    device_->submit();
  }
  int32_t token(int ring, int row = 0) {
    return reinterpret_cast<const int32_t*>(device_->output(ring).data() + layout_.tokens)[row];
  }

  std::unique_ptr<CpuBackend> device_;
  OutputLayout layout_;
  WeightId table_, head_, qkv_weight_, o_weight_, norm_weight_, freqs_;
  Region residual_, normed_, qkv_, rope_, attended_, gathered_, logits_;
};

TEST_F(CpuBackendTest, RunsAStep) {
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

TEST_F(CpuBackendTest, TwoStepsInFlightChainTheirTokens) {
  submit(decode(10, 0, 0));
  for (int i = 1; i < 20; ++i) {
    submit(decode(-1, i, i % 2));  // what row 0 of the step before sampled
    device_->wait((i - 1) % 2);
    EXPECT_EQ(token((i - 1) % 2), 10 + i);
  }
  device_->wait(1);
  EXPECT_EQ(token(1), 30);
}

TEST_F(CpuBackendTest, NegativeIdsNameTheRow) {
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

TEST_F(CpuBackendTest, AFailedStepLeavesTheDeviceWorking) {
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

TEST_F(CpuBackendTest, CountsWhatHappens) {
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

TEST_F(CpuBackendTest, AStepAllocatesNothing) {
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

TEST_F(CpuBackendTest, RefusesMisuse) {
  EXPECT_THROW(device_->submit(), Error);
  EXPECT_THROW(device_->wait(0), Error);
  EXPECT_THROW(device_->norm({NormKind::rms, 1e-5f, 1, kHidden, residual_, norm_weight_, {}, normed_}), Error);
  const StagedStep staged = decode(5, 0, 0).stage(*device_);
  device_->begin(staged);
  EXPECT_THROW(device_->norm({NormKind::rms, 1e-5f, 1000, kHidden, residual_, norm_weight_, {}, normed_}), Error);
  EXPECT_THROW(device_->norm({NormKind::rms, 1e-5f, 1, kHidden, residual_, WeightId{99}, {}, normed_}), Error);
  EXPECT_THROW(device_->norm({NormKind::rms, 1e-5f, 1, kHidden, residual_, head_, {}, normed_}), Error);
  submit(decode(5, 0, 0));                      // an abandoned step does not stop the next
  EXPECT_THROW(device_->begin(staged), Error);  // the ring is in flight
  std::vector<std::byte> bytes(64);
  EXPECT_THROW(device_->read_scratch(residual_, bytes), Error);
  device_->wait(0);
  EXPECT_EQ(token(0), 6);
}

TEST_F(CpuBackendTest, Declines) {
  ModelConfig config;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_size = 64;
  config.rope_dims = 64;
  KvLayout kv;
  kv.head_size = 64;
  EXPECT_EQ(device_->decline(config, kv), std::nullopt);
  const auto declined = [&](auto change) {
    ModelConfig c = config;
    KvLayout k = kv;
    change(c, k);
    return device_->decline(c, k).has_value();
  };
  EXPECT_TRUE(declined([](ModelConfig& c, KvLayout&) { c.head_size = 60; }));
  EXPECT_TRUE(declined([](ModelConfig& c, KvLayout&) { c.head_size = 576; }));
  EXPECT_TRUE(declined([](ModelConfig& c, KvLayout&) { c.kv_heads = 3; }));
  EXPECT_TRUE(declined([](ModelConfig& c, KvLayout&) { c.rope_dims = 128; }));
  EXPECT_TRUE(declined([](ModelConfig&, KvLayout& k) { k.block_size = 12; }));
}

}  // namespace
}  // namespace ingot::test
