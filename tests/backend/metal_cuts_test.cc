// A product whose columns ranks could share is one dispatch, with the bits of as many products as there are cuts, added
// as (0 + 1) + (2 + 3): what ranks that have some of the cuts each would find.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/metal/device.h"
#include "backend/metal/linear/plan.h"
#include "harness.h"
#include "metal_mode.h"
#include "quant_blocks.h"
#include "soak.h"

namespace ingot::test {
namespace {

struct Cutting {
  DType activation, format;
  int64_t unit;                // columns of a cut are multiples of it
  std::vector<int64_t> ends;   // in units
  std::vector<int64_t> rows;   // of x
  metal::LinearVariant tried;  // unroll > 0: few rows by this one instead of the device's own
};
std::string name_of(const ::testing::TestParamInfo<Cutting>& info) {
  const Cutting& c = info.param;
  std::string name = std::string(dtype_name(c.activation)) + "_" + std::string(dtype_name(c.format));
  for (const int64_t end : c.ends) name += "_" + std::to_string(end * c.unit);
  return c.tried.unroll > 0 ? name + "_unrolled" : name;
}
void PrintTo(const Cutting& c, std::ostream* out) { *out << name_of({c, 0}); }

constexpr int64_t kOutputs = 21;

class MetalLinearCuts : public ::testing::TestWithParam<Cutting> {
 protected:
  void SetUp() override {
    metal_in_watched_mode(::testing::UnitTest::GetInstance()->current_test_info()->name());
    const Cutting& c = GetParam();
    cols_ = c.ends.back() * c.unit;
    std::mt19937 random(7);
    bytes_ = random_tensor(c.format, kOutputs, cols_, random);
    tensor_ = {"w", c.format, {kOutputs, cols_}, std::as_bytes(std::span(bytes_))};
    in_ = random_floats(random, static_cast<size_t>(c.rows.back() * cols_), 0.25f);
    bias_ = random_floats(random, kOutputs);
    residual_ = random_floats(random, static_cast<size_t>(c.rows.back() * kOutputs));
    if (c.tried.unroll > 0) metal::tried_variant = c.tried;
  }
  void TearDown() override { metal::tried_variant.reset(); }

  // Columns [first, last) of the matrix; with what is added to them, or without.
  std::vector<float> product(int64_t rows, const std::vector<int64_t>& cuts, int64_t first, int64_t last, bool adds) {
    const auto count = static_cast<size_t>(rows * kOutputs);
    MetalOptions options;
    options.activation = GetParam().activation;
    const std::unique_ptr<Backend> own = make_metal_backend(options);
    MatrixSpec spec{.name = "w", .parts = {{.tensor = &tensor_, .first_col = first}}, .rows = kOutputs};
    spec.cols = last - first;
    spec.slices = cuts;
    std::vector<float> x;
    for (int64_t r = 0; r < rows; ++r) x.insert(x.end(), &in_[r * cols_] + first, &in_[r * cols_] + last);
    RegionPlan plan;
    LinearOp op{.rows = rows, .in = plan.take(x.size()), .out = plan.take(count), .f32_out = true};
    own->create_scratch(plan.bytes());
    own->create_io(4096, OutputLayout::of(1, 1, 1, 16));
    op.weight = own->load_matrix(spec);
    if (adds) op.bias = own->load_vector("bias", bias_);
    op.accumulate = adds;
    put(*own, op.in, x);
    put(*own, op.out, std::span(residual_).first(count), true);
    const uint64_t before = own->counters().dispatches;
    run_step(*own, {}, [&] { own->encode(op); });
    EXPECT_EQ(own->counters().dispatches - before, 1u);
    return get(*own, op.out, count, true);
  }

  int64_t cols_ = 0;
  std::vector<uint8_t> bytes_;
  TensorView tensor_;
  std::vector<float> in_, bias_, residual_;
};

TEST_P(MetalLinearCuts, AddUpAsRanksWould) {
  if (kSanitized) GTEST_SKIP() << "many kernels, none of its own for a sanitizer";
  std::vector<int64_t> ends;
  for (const int64_t end : GetParam().ends) ends.push_back(end * GetParam().unit);
  for (const int64_t rows : GetParam().rows) {
    const auto count = static_cast<size_t>(rows * kOutputs);
    std::vector<std::vector<float>> pairs;
    int64_t column = 0;
    for (size_t pair = 0; pair < ends.size(); pair += 2) {
      std::vector<float> sum;
      for (const int64_t end : {ends[pair], ends[pair + 1]}) {
        if (end == column) continue;
        const std::vector<float> part = product(rows, {}, column, end, false);
        if (sum.empty())
          sum = part;
        else
          for (size_t i = 0; i < count; ++i) sum[i] += part[i];
        column = end;
      }
      if (!sum.empty()) pairs.push_back(sum);
    }
    std::vector<float> want(count);
    for (size_t i = 0; i < count; ++i) {
      float sum = pairs.size() == 2 ? pairs[0][i] + pairs[1][i] : pairs[0][i];
      sum += bias_[i % kOutputs];
      want[i] = residual_[i] + sum;
    }
    const std::vector<float> got = product(rows, ends, 0, cols_, true);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), count * sizeof(float)), 0) << rows << " rows";
  }
}

// Few rows, tiles of 32 and of 64 rows; odd columns, and those that are streamed.
std::vector<Cutting> cuttings() {
  std::vector<Cutting> all = {
      {DType::f16, DType::f16, 2, {13, 20, 35, 44}, {3, 20, 40}, {}},
      {DType::f16, DType::f16, 8, {0, 3, 5, 11}, {3}, {}},
      {DType::f16, DType::f16, 8, {3, 3, 3, 11}, {3}, {}},
      {DType::f16, DType::f16, 8, {0, 0, 5, 11}, {3}, {}},
      {DType::f16, DType::f16, 8, {5, 11}, {3}, {}},
      {DType::f16, DType::f16, 32, {3, 10, 12, 21}, {3, 15}, {}},
      {DType::f16, DType::q8_0, 32, {3, 4, 9, 11}, {3, 20}, {}},
      {DType::f16, DType::q4_k, 256, {1, 2, 5, 6}, {3, 40}, {}},
      {DType::f16, DType::q8_0, 256, {1, 2, 5, 6}, {3}, {.unroll = 4}},
      {DType::bf16, DType::bf16, 32, {1, 5, 6, 9}, {3, 20}, {}},
      {DType::bf16, DType::q4_1, 32, {1, 5, 6, 9}, {3, 20}, {}},
  };
  if (!soak()) return all;
  for (const DType activation : {DType::f16, DType::bf16})
    for (const DType format :
         {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0,
          DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl})
      all.push_back({activation, format, std::max(dtype_info(format).block_size, 8), {1, 3, 4, 7}, {1, 9, 17, 33}, {}});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinearCuts, ::testing::ValuesIn(cuttings()), name_of);

}  // namespace
}  // namespace ingot::test
