// Products of experts on the software device, from one row of an expert to many: the same bits, and weights that are
// loaded once for 64 rows of an expert.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <list>

#include "backend/metal/device.h"
#include "backend/metal/linear/linear.h"
#include "backend/metal/traffic.h"
#include "harness.h"
#include "metal_mode.h"
#include "quant_blocks.h"
#include "soak.h"

namespace ingot::test {
namespace {

constexpr int64_t kOutputs = 40;

// A gated product of rows and a plain one of pairs, each with inputs of its own.
class Mixture {
 public:
  Mixture(DType type, int64_t experts, int64_t per_token, int64_t most_rows)
      : cols_(is_block_quantized(type) ? 256 : 96),
        route_{.rows = most_rows, .experts = experts, .per_token = per_token} {
    const auto take = [this](int64_t words) { return plan_.take(static_cast<size_t>(words)); };
    const int64_t pairs = route_.pairs();
    for (Region* region : {&route_.ids, &route_.weights, &route_.order, &route_.places}) *region = take(pairs);
    route_.starts = take(experts + 1);
    route_.items = take(route_.item_words());
    logits_ = take(most_rows * experts);
    inside_.in = take(most_rows * cols_);
    inside_.out = take(pairs * kOutputs);
    outside_.in = take(pairs * cols_);
    outside_.out = take(pairs * kOutputs);
    device_ = make_metal_backend({.activation = DType::f16});
    device_->create_scratch(plan_.bytes());
    device_->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    inside_.weight = load(type, "gate");
    inside_.up = load(type, "up");
    outside_.weight = load(type, "down");
  }

  struct Results {
    std::vector<float> gated, plain;  // of each pair in turn, [kOutputs]
    friend bool operator==(const Results&, const Results&) = default;
    Results of_rows(int64_t first, int64_t count, int64_t per_token) const {
      const auto part = [&](const std::vector<float>& all) {
        const auto begin = all.begin() + first * per_token * kOutputs;
        return std::vector<float>(begin, begin + count * per_token * kOutputs);
      };
      return {part(gated), part(plain)};
    }
  };
  // Of rows with these logits [rows, experts] and numbers [rows, cols], and [rows, per_token, cols] by pairs.
  Results run(std::span<const float> logits, std::span<const float> rows, std::span<const float> pairs) {
    ExpertRoute route = route_;
    route.rows = static_cast<int64_t>(logits.size()) / route.experts;
    const auto count = static_cast<size_t>(route.pairs());
    ExpertLinearOp inside = inside_, outside = outside_;
    inside.route = outside.route = route;
    put(*device_, logits_, logits, true);
    put(*device_, inside.in, rows);
    run_step(*device_, {}, [&] { device_->encode(RouteOp{logits_, route, true}); });
    // Pairs lie in the order that the route has found.
    const std::vector<int32_t> places = ints(route.places, count);
    std::vector<float> sorted(pairs.size());
    for (size_t pair = 0; pair < count; ++pair)
      std::copy_n(pairs.begin() + static_cast<int64_t>(pair) * cols_, cols_, sorted.begin() + places[pair] * cols_);
    put(*device_, outside.in, sorted);
    take_metal_traffic();
    run_step(*device_, {}, [&] {
      device_->encode(inside);
      device_->encode(outside);
    });
    loaded = take_metal_traffic().matrices;
    const std::vector<float> gated = get(*device_, inside.out, count * kOutputs);
    const std::vector<float> plain = get(*device_, outside.out, count * kOutputs, true);
    Results results;
    for (size_t pair = 0; pair < count; ++pair) {
      const int64_t at = places[pair] * kOutputs;
      results.gated.insert(results.gated.end(), gated.begin() + at, gated.begin() + at + kOutputs);
      results.plain.insert(results.plain.end(), plain.begin() + at, plain.begin() + at + kOutputs);
    }
    return results;
  }

  int64_t cols() const { return cols_; }
  size_t weight_bytes() const { return weight_bytes_; }
  uint64_t loaded = 0;  // bytes of weights, by the products of the last run

 private:
  WeightId load(DType type, const char* name) {
    const int64_t rows = route_.experts * kOutputs;
    const std::vector<uint8_t>& bytes = bytes_.emplace_back(random_tensor(type, rows, cols_, random_));
    weight_bytes_ += bytes.size();
    const TensorView tensor{name, type, {rows, cols_}, std::as_bytes(std::span(bytes))};
    MatrixSpec spec{name, {{&tensor, 0}}, rows, cols_};
    spec.groups = route_.experts;
    return device_->load_matrix(spec);
  }
  std::vector<int32_t> ints(Region region, size_t n) {
    std::vector<int32_t> numbers(n);
    device_->read_scratch({region.offset, n * 4}, std::as_writable_bytes(std::span(numbers)));
    return numbers;
  }

  int64_t cols_;
  ExpertRoute route_;
  RegionPlan plan_;
  Region logits_;
  ExpertLinearOp inside_, outside_;
  std::mt19937 random_{11};
  std::list<std::vector<uint8_t>> bytes_;
  size_t weight_bytes_ = 0;
  std::unique_ptr<Backend> device_;
};

// From one row to as many as fill tiles, of experts that have a few of them and others that have most.
TEST(MetalExperts, HaveTheSameBitsInTilesAndAlone) {
  if (kSanitized) GTEST_SKIP() << "many kernels, none of its own for a sanitizer";
  constexpr int64_t kExperts = 3, kPerToken = 2, kMost = 150;
  for (const DType type : {DType::f16, DType::q4_k, DType::f32}) {
    metal_in_watched_mode(::testing::UnitTest::GetInstance()->current_test_info()->name());
    Mixture mixture(type, kExperts, kPerToken, kMost);
    std::mt19937 random(5);
    std::vector<float> logits = random_floats(random, kMost * kExperts);
    for (size_t row = 0; row < kMost; row += 3) logits[row * kExperts] += 4.0f;  // the first one has the most
    const std::vector<float> rows = random_floats(random, static_cast<size_t>(kMost * mixture.cols()), 0.05f);
    const std::vector<float> pairs =
        random_floats(random, static_cast<size_t>(kMost * kPerToken * mixture.cols()), 0.05f);
    const auto run = [&](int64_t first, int64_t count) {
      const auto part = [&](const std::vector<float>& all, int64_t each) {
        return std::span(all).subspan(static_cast<size_t>(first * each), static_cast<size_t>(count * each));
      };
      return mixture.run(part(logits, kExperts), part(rows, mixture.cols()), part(pairs, kPerToken * mixture.cols()));
    };
    const Mixture::Results all = run(0, kMost);
    // Items of 8, 16 and 32 rows, where all of them have 64.
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{77, 1}, {31, 20}, {90, 50}})
      EXPECT_EQ(run(first, count), all.of_rows(first, count, kPerToken))
          << dtype_name(type) << ", " << count << " rows";
  }
}

TEST(MetalExperts, LoadWeightsOnceFor64Rows) {
  if (kSanitized) GTEST_SKIP() << "nothing here for a sanitizer to see";
  constexpr int64_t kExperts = 2, kRows = 256;
  metal_in_count_mode();
  for (const DType type : {DType::f16, DType::q4_k}) {
    Mixture mixture(type, kExperts, 1, kRows);
    std::mt19937 random(5);
    std::vector<float> logits(kRows * kExperts);
    for (size_t row = 0; row < kRows; ++row) logits[row * kExperts + (row % 4 == 0 ? 1 : 0)] = 1.0f;
    const std::vector<float> numbers = random_floats(random, static_cast<size_t>(kRows * mixture.cols()), 0.05f);
    mixture.run(logits, numbers, numbers);
    // 192 rows have the first expert, three times 64, and 64 the other one.
    const double once = static_cast<double>(mixture.weight_bytes()) / kExperts;
    // Each of the eight units of a block of q4_k comes with the 16 bytes of the block's scales, beside 128 of codes.
    const double most = type == DType::q4_k ? 256.0 / 144 : 1.0;
    EXPECT_LE(static_cast<double>(mixture.loaded), most * once * 4) << dtype_name(type);
    EXPECT_GE(static_cast<double>(mixture.loaded), once * 4) << dtype_name(type);
  }
}

// As many at a time as an expert has rows for; an expert's share follows from the rows of a step rounded up, so that
// a load meets every size that a step can ask for.
TEST(MetalExperts, TakeTilesWhereAnExpertHasTheRows) {
  const auto rows_of = [](int64_t rows, int family) {
    return metal::expert_item_rows({.rows = rows, .experts = 128, .per_token = 8}, family);
  };
  for (const auto& [rows, apple, nvidia] : {std::array<int64_t, 3>{1, 8, 8},
                                            {128, 8, 8},
                                            {129, 16, 16},
                                            {256, 16, 16},
                                            {257, 32, 32},
                                            {513, 64, 64},
                                            {1024, 64, 64},
                                            {1025, 64, 128},
                                            {8192, 64, 128}}) {
    EXPECT_EQ(rows_of(rows, 9), apple) << rows;
    EXPECT_EQ(rows_of(rows, metal::kNvidiaFamily), nvidia) << rows;
  }
}

}  // namespace
}  // namespace ingot::test
