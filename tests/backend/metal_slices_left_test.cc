// A product that leaves the sums of its slices, and who adds them: a norm of what they are added to on its way, or a
// dispatch of its own before anything else.
#include <gtest/gtest.h>

#include "backend/metal/device.h"
#include "backend/metal/linear/plan.h"
#include "harness.h"
#include "metal_linear_rig.h"
#include "metal_mode.h"

namespace ingot::test {
namespace {

constexpr int64_t kDim = 72, kCols = 256 * 3, kRows = 13;

class MetalSlicesLeft : public testing::Test {
 protected:
  MetalSlicesLeft() : stored_(stored_matrix(DType::q4_k, kDim, kCols, 11)) {
    metal_in_strict_mode();
    device_ = make_metal_backend({});
    RegionPlan plan;
    in_ = plan.take(kRows * kCols);
    residual_ = plan.take(kRows * kDim);
    normed_ = plan.take(kRows * kDim);
    other_ = plan.take(kRows * kDim);
    device_->create_scratch(plan.bytes());
    device_->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    matrix_ = device_->load_matrix(stored_->spec);
    std::mt19937 random(5);
    const auto vector = [&](const char* name) { return device_->load_vector(name, random_floats(random, kDim)); };
    weight_ = vector("weight");
    bias_ = vector("bias");
    put(*device_, in_, random_floats(random, kRows * kCols));
    before_ = random_floats(random, kRows * kDim);
  }
  ~MetalSlicesLeft() override { metal::tried_variant.reset(); }

  LinearOp product() const {
    return {.rows = kRows, .in = in_, .weight = matrix_, .out = residual_, .accumulate = true};
  }
  NormOp norm(int64_t rows = kRows) const {
    return {.rows = rows, .dim = kDim, .in = residual_, .weight = weight_, .out = normed_};
  }

  struct Result {
    std::vector<float> residual, normed;
    uint64_t dispatches;
  };
  // What the operations make of the same inputs, with slices left or summed up in the product.
  Result run(bool leaves, const std::function<void()>& operations) {
    metal::tried_variant = metal::LinearVariant{.matrix = 2, .unroll = leaves ? 2 : 1};
    if (leaves) {
      metal::tried_variant->shared = 2;
      metal::tried_variant->split = true;
    }
    const std::vector<float> zeros(kRows * kDim);
    for (int turn = 0; turn < 2; ++turn) {  // the second time everything is compiled
      put(*device_, residual_, before_, true);
      put(*device_, normed_, zeros);
      const uint64_t dispatches = device_->counters().dispatches;
      run_step(*device_, {}, operations);
      dispatches_ = device_->counters().dispatches - dispatches;
    }
    return {get(*device_, residual_, kRows * kDim, true), get(*device_, normed_, kRows * kDim), dispatches_};
  }
  void expect_same(const std::function<void()>& operations, uint64_t dispatches) {
    const Result want = run(false, operations), result = run(true, operations);
    EXPECT_EQ(result.residual, want.residual);
    EXPECT_EQ(result.normed, want.normed);
    EXPECT_NE(result.residual, before_);
    EXPECT_EQ(result.dispatches, dispatches);
  }

  std::unique_ptr<StoredMatrix> stored_;
  std::unique_ptr<Backend> device_;
  Region in_, residual_, normed_, other_;
  WeightId matrix_, weight_, bias_;
  std::vector<float> before_;
  uint64_t dispatches_ = 0;
};

TEST_F(MetalSlicesLeft, ANormAddsThemOnItsWay) {
  expect_same(
      [&] {
        device_->encode(product());
        device_->encode(norm());
      },
      2);
}
TEST_F(MetalSlicesLeft, ALayerNormWithACopyDoesToo) {
  NormOp op = norm();
  op.kind = NormKind::layer;
  op.bias = bias_;
  op.f32_copy = other_;
  expect_same(
      [&] {
        device_->encode(product());
        device_->encode(op);
      },
      2);
}
TEST_F(MetalSlicesLeft, TwoProductsAfterEachOther) {
  expect_same(
      [&] {
        device_->encode(product());
        device_->encode(product());
        device_->encode(norm());
      },
      4);
}
TEST_F(MetalSlicesLeft, ANormOfOtherRowsDoesNot) {
  expect_same(
      [&] {
        device_->encode(product());
        device_->encode(norm(kRows - 1));
      },
      3);
}
TEST_F(MetalSlicesLeft, ANormOfSomethingElseDoesNot) {
  NormOp op = norm();
  op.in = other_;
  put(*device_, other_, before_, true);
  expect_same(
      [&] {
        device_->encode(product());
        device_->encode(op);
      },
      3);
}
TEST_F(MetalSlicesLeft, ABiasIsNotTheNormsBusiness) {
  LinearOp op = product();
  op.bias = bias_;
  expect_same(
      [&] {
        device_->encode(op);
        device_->encode(norm());
      },
      3);
}
TEST_F(MetalSlicesLeft, TheEndOfAStepAddsThem) {
  expect_same([&] { device_->encode(product()); }, 2);
}

}  // namespace
}  // namespace ingot::test
