#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "backend/metal/linear/candidates.h"
#include "core/error.h"
#include "metal_linear_rig.h"
#include "soak.h"

// The matrix kernels of the Metal device against double precision: every format, ragged sizes, every epilogue; and what
// they promise beside: a row's bits do not depend on its batch nor on the way that is taken, and weights are loaded
// once.
namespace ingot::metal {
namespace {

using softmetal::Mode;
using test::floats;
using test::MetalRig;
using test::normal_floats;
using test::soak;
using test::stored;
using test::stored_matrix;
using test::StoredMatrix;

MetalRig& rig(Mode mode, uint64_t seed = 0) {
  // Never destroyed: the device may be gone before this file's statics.
  static auto& rigs = *new std::map<std::pair<int, uint64_t>, std::unique_ptr<MetalRig>>;
  auto& one = rigs[{static_cast<int>(mode), seed}];
  softmetal::Options options = softmetal::options();
  options.mode = mode;
  options.seed = seed;
  softmetal::set_options(options);
  if (!one) one = std::make_unique<MetalRig>(options);
  return *one;
}

// Strict, in an order of threads that follows from the test's name.
MetalRig& watched() {
  const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
  unsigned hash = 0;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return rig(Mode::strict, hash / 7 % 4);
}

// With a sanitizer a kernel takes seconds to compile: a few of them stand for all, and what does not look for bad
// accesses or races is left out.
#ifdef INGOT_SANITIZED
constexpr DType kFormats[] = {DType::f16, DType::q5_k};
#else
constexpr DType kFormats[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0,  DType::q4_1,
                              DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,  DType::q3_k,
                              DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl};
#endif
#define SKIP_WHEN_SANITIZED() \
  if (test::kSanitized) GTEST_SKIP() << "many kernels, none of its own for a sanitizer"

// A product with everything it needs.
struct Product {
  LinearShape shape;
  const StoredMatrix* weight = nullptr;
  const StoredMatrix* up = nullptr;
  std::vector<float> in;  // [rows, cols]
  std::vector<float> bias, bias_up;
  std::vector<float> residual;  // [rows, outputs], when accumulating
  std::optional<LinearVariant> variant;
};

Product product(const StoredMatrix& weight, int64_t rows, DType act = DType::f16) {
  Product p;
  p.weight = &weight;
  p.shape.format = p.shape.format_up = weight.tensor.dtype;
  p.shape.rows = rows;
  p.shape.cols = weight.spec.cols;
  p.shape.outputs = p.shape.out_stride = weight.spec.rows;
  p.shape.in = p.shape.out = act;
  p.in = normal_floats(rows * weight.spec.cols, 7, 0.25f);
  return p;
}

// [rows, outputs] as the device stored them.
std::vector<std::byte> run(MetalRig& rig, Product p) {
  p.shape.bias = !p.bias.empty();
  p.shape.bias_up = !p.bias_up.empty();
  const LinearPlan plan = plan_linear(p.shape, p.variant ? *p.variant : linear_variant(p.shape, 9));
  auto* pipeline = rig.pipeline(plan.kernel, plan.constants);
  auto weight = rig.private_buffer(p.weight->packed, "weight");
  auto up = p.up != nullptr ? rig.private_buffer(p.up->packed, "weight up") : nullptr;
  auto in = rig.private_buffer(stored(p.shape.in, p.in), "scratch in");
  auto vector = [&](const std::vector<float>& v) {
    return v.empty() ? nullptr : rig.private_buffer(std::as_bytes(std::span(v)), "weight bias");
  };
  auto bias = vector(p.bias), bias_up = vector(p.bias_up);
  const size_t out_bytes = dtype_bytes(p.shape.out, static_cast<size_t>(p.shape.rows * p.shape.outputs));
  auto out = p.shape.accumulate ? rig.private_buffer(std::as_bytes(std::span(p.residual)), "scratch out")
                                : rig.empty_buffer(out_bytes, "scratch out");
  auto partials = plan.partial_bytes > 0 ? rig.empty_buffer(plan.partial_bytes, "scratch partials") : nullptr;
  softmetal::take_traffic();
  rig.run([&](MTL::ComputeCommandEncoder* encoder) {
    encoder->setComputePipelineState(pipeline);
    encoder->setBuffer(weight.get(), 0, 0);
    if (up) encoder->setBuffer(up.get(), 0, 1);
    encoder->setBuffer(in.get(), 0, 2);
    encoder->setBuffer(bias ? bias.get() : weight.get(), 0, 3);
    if (up) encoder->setBuffer(bias_up ? bias_up.get() : weight.get(), 0, 4);
    encoder->setBuffer(out.get(), 0, 5);
    encoder->setBytes(&plan.params, sizeof(plan.params), 6);
    if (partials) encoder->setBuffer(partials.get(), 0, 10);
    encoder->setThreadgroupMemoryLength(plan.threadgroup_bytes, 0);
    encoder->dispatchThreadgroups(MTL::Size(plan.groups, 1, 1), MTL::Size(plan.threads, 1, 1));
    if (plan.add_groups == 0) return;
    encoder->setComputePipelineState(rig.pipeline("linear_add", plan.constants));
    encoder->dispatchThreadgroups(MTL::Size(plan.add_groups, plan.add_row_groups, 1), MTL::Size(256, 1, 1));
  });
  return rig.read(out.get(), out_bytes);
}

double activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu: return x / (1.0 + std::exp(-x));
    case ActivationKind::gelu: return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

// Relative rounding of a stored number.
double step(DType type) { return type == DType::f32 ? 0x1p-24 : type == DType::f16 ? 0x1p-11 : 0x1p-8; }

// Every output against the same sum in double. What is allowed: the rounding of the sum (each product once, relative to
// the sizes of the products), of weights and scales to the type that is multiplied, and of the output to its own.
void check(const Product& p, const std::vector<std::byte>& bytes, const std::string& what) {
  const std::vector<float> out = floats(p.shape.out, bytes);
  const std::vector<float> in = floats(p.shape.in, stored(p.shape.in, p.in));
  ASSERT_EQ(out.size(), static_cast<size_t>(p.shape.rows * p.shape.outputs));
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    for (int64_t o = 0; o < p.shape.outputs; ++o) {
      const size_t at = static_cast<size_t>(r * p.shape.outputs + o);
      auto dot = [&](const StoredMatrix& w, const std::vector<float>& bias, double& error) {
        double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(o)], size = std::fabs(sum);
        for (int64_t k = 0; k < p.shape.cols; ++k) {
          const double term = w.at(o, k) * in[static_cast<size_t>(r * p.shape.cols + k)];
          sum += term;
          size += std::fabs(term);
        }
        const bool rounds = tile_type(p.shape) == DType::f16 && is_block_quantized(w.tensor.dtype);
        error = size * (4e-6 + (rounds ? 0x1p-10 : 0.0));
        return sum;
      };
      double error = 0, up_error = 0;
      double want = dot(*p.weight, p.bias, error);
      if (p.up != nullptr) {
        const double up = dot(*p.up, p.bias_up, up_error), gate = activated(*p.shape.activation, want);
        error = 1.2 * error * std::fabs(up) + up_error * std::fabs(gate) + 1e-6 * std::fabs(up);
        want = gate * up;
      }
      if (p.shape.accumulate) want += p.residual[at];
      error += std::fabs(want) * step(p.shape.out) + 1e-6;
      ASSERT_NEAR(out[at], want, error) << what << ", row " << r << ", output " << o;
    }
  }
}

// A length that suits the format, with a last slice that is cut, and odd where it may be.
int64_t cols_of(DType type, bool longer = true) {
  const int64_t block = is_block_quantized(type) ? dtype_info(type).block_size : 37;
  return block * (block == 256 ? (longer ? 3 : 1) : longer ? 11 : 3);
}

std::vector<std::byte> rows_of(const std::vector<std::byte>& bytes, int64_t rows, int64_t first, int64_t count) {
  const auto each = static_cast<int64_t>(bytes.size()) / rows;
  return {bytes.begin() + first * each, bytes.begin() + (first + count) * each};
}

// The same product of rows [first, first + count) of p.
Product slice(const Product& p, int64_t first, int64_t count) {
  Product s = p;
  s.shape.rows = count;
  s.in.assign(p.in.begin() + first * p.shape.cols, p.in.begin() + (first + count) * p.shape.cols);
  if (!p.residual.empty())
    s.residual.assign(p.residual.begin() + first * p.shape.outputs,
                      p.residual.begin() + (first + count) * p.shape.outputs);
  return s;
}

class MetalLinear : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinear, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Few rows and tiles, groups of rows and of outputs, whole and cut: right, and the same bits.
TEST_P(MetalLinear, MatchesDoubleInOneOrder) {
  const auto w = stored_matrix(GetParam(), 70, cols_of(GetParam()), 1);
  Product all = product(*w, 70);
  all.bias = normal_floats(70, 3);
  const std::vector<std::byte> want = run(watched(), all);
  check(all, want, "70 rows");
  for (const int64_t rows :
       soak() ? std::vector<int64_t>{1, 3, 8, 9, 16, 17, 32, 33, 64, 65} : std::vector<int64_t>{3}) {
    const int64_t first = rows * 5 % (70 - rows);
    EXPECT_EQ(run(watched(), slice(all, first, rows)), rows_of(want, 70, first, rows)) << rows << " rows";
  }
}

TEST_P(MetalLinear, MatchesDoubleInShortRows) {
  if (!soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  const auto w = stored_matrix(GetParam(), 70, cols_of(GetParam(), false), 2);
  for (const int64_t rows : {1, 13, 21, 70}) {
    const Product p = product(*w, rows);
    check(p, run(watched(), p), std::to_string(rows) + " rows");
  }
}

// Bytes of weights that kernels have loaded since the last call: all of them, and each once.
std::pair<uint64_t, uint64_t> take_weight_traffic() {
  uint64_t loaded = 0, unique = 0;
  for (const softmetal::Traffic& t : softmetal::take_traffic())
    for (const auto& buffer : t.buffers)
      if (buffer.label == "weight" && !t.kernel.starts_with("a copy")) {
        loaded += buffer.loaded;
        unique += buffer.unique_loaded;
      }
  return {loaded, unique};
}

// Weights once for all rows, and nothing but the matrix: what is in memory, counted by the byte.
TEST_P(MetalLinear, LoadsWeightsOnceForAllRows) {
  SKIP_WHEN_SANITIZED();
  // Each layout of a block once.
  constexpr DType kLayouts[] = {DType::f16, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::iq4_nl};
  if (std::ranges::find(kLayouts, GetParam()) == std::end(kLayouts) && !soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  const int64_t cols = is_block_quantized(GetParam()) ? 512 : 128;
  const auto w = stored_matrix(GetParam(), 64, cols, 5);
  ASSERT_EQ(w->packed.size(), w->bytes.size()) << "packing must not make a matrix larger";
  for (int64_t rows : soak() ? std::vector<int64_t>{16, 1, 8} : std::vector<int64_t>{16}) {
    const Product p = product(*w, rows);
    check(p, run(rig(Mode::count), p), std::to_string(rows) + " rows");
    const auto [loaded, unique] = take_weight_traffic();
    EXPECT_EQ(unique, w->packed.size()) << rows << " rows";
    // Scales of a block of 256 are shared by lanes that each load them: of q4_k 16 bytes by eight, beside 128 of codes.
    const double most = GetParam() == DType::q4_k ? 256.0 / 144 : 1.35;
    EXPECT_LE(static_cast<double>(loaded), most * static_cast<double>(unique)) << rows << " rows";
  }
}

// Few rows in loops that are unrolled, cut in any way: the bits of those that go unit by unit.
class MetalLinearStreams : public testing::TestWithParam<DType> {};
#ifdef INGOT_SANITIZED
constexpr DType kStreamedFormats[] = {DType::f16};
#else
constexpr DType kStreamedFormats[] = {DType::f16, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::iq4_nl};
#endif
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinearStreams, testing::ValuesIn(kStreamedFormats),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(MetalLinearStreams, HaveTheSameBits) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(GetParam(), 45, GetParam() == DType::f16 ? 32 * 11 : 256 * 3, 11);
  Product all = product(*w, 15);
  ASSERT_TRUE(fits_streams(all.shape));
  all.variant = LinearVariant{};
  const std::vector<std::byte> want = run(watched(), all);
  check(all, want, "15 rows");
  Product one = slice(all, 3, 1);
  one.variant = LinearVariant{.unroll = GetParam() == DType::q8_0 ? 4 : 2};  // blocks of 256 columns
  // An odd number of panels, most of them not there the second time; those of blocks take minutes to compile here.
  if (GetParam() == DType::f16) one.variant->matrix = 5;
  EXPECT_EQ(run(watched(), one), rows_of(want, 15, 3, 1)) << "alone";
  if (GetParam() != DType::f16 && !soak()) return;  // each kernel takes long to compile
  all.variant = LinearVariant{.matrix = 2, .unroll = 1};
  EXPECT_EQ(run(watched(), all), want) << "two panels";
}

TEST_P(MetalLinearStreams, AreCleanAndGate) {
  SKIP_WHEN_SANITIZED();
  if (GetParam() != DType::f16 && GetParam() != DType::q4_k && !soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  const int64_t cols = GetParam() == DType::f16 ? 96 : 256;
  const auto w = stored_matrix(GetParam(), 21, cols, 41), up = stored_matrix(GetParam(), 21, cols, 42);
  Product p = product(*w, 5);
  p.up = up.get();
  p.shape.activation = ActivationKind::silu;
  p.in = normal_floats(5 * cols, 7, 0.02f);
  p.variant = LinearVariant{.unroll = 2};
  const std::vector<std::byte> got = run(watched(), p);
  check(p, got, "gated");
  p.variant = LinearVariant{};
  EXPECT_EQ(run(watched(), p), got);
}

// Tiles as large as some devices have threadgroup memory for, and filled by copies some turns ahead: one buffer and
// several, turns of 32 and 64 columns, sums of 32 and 64 outputs, totals in threadgroup memory.
TEST(MetalLinearTiles, OfEverySizeHaveTheSameBits) {
  SKIP_WHEN_SANITIZED();
  const LinearVariant copies{
      .tile_rows = 32, .tile_width = 64, .tile_turn = 32, .buffers = 3, .copies = true, .totals = true};
  for (const DType type :
       soak() ? std::vector{DType::f16, DType::q8_0, DType::q4_k} : std::vector{DType::f16, DType::q4_k}) {
    const auto w = stored_matrix(type, 45, type == DType::f16 ? 64 * 11 : 256 * 3, 61);
    Product p = product(*w, 70);
    const std::vector<std::byte> want = run(watched(), p);
    check(p, want, "tiles of the default");
    std::vector<LinearVariant> variants = {{.tile_rows = 32, .tile_outputs = 128}, copies};
    if (soak()) variants.push_back({.tile_rows = 32, .tile_turn = 64, .buffers = 2});
    if (type == DType::f16 && !soak()) variants = {copies};
    for (const LinearVariant& variant : variants) {
      ASSERT_TRUE(fits(p.shape, variant, 9));
      p.variant = variant;
      EXPECT_EQ(run(watched(), p), want) << name_of(LinearWay{false, variant});
    }
  }
}

// Prompts: weights are loaded once for 64 rows, or for more.
TEST(MetalLinearTiles, LoadWeightsOnceFor64Rows) {
  SKIP_WHEN_SANITIZED();
  constexpr int64_t kRows = 256;
  for (const DType type : {DType::f16, DType::q4_k}) {
    const auto w = stored_matrix(type, 64, type == DType::f16 ? 128 : 256, 5);
    const Product p = product(*w, kRows);
    check(p, run(rig(Mode::count), p), "256 rows");
    const auto [loaded, unique] = take_weight_traffic();
    EXPECT_EQ(unique, w->packed.size());
    // Each of the eight units of a block of q4_k comes with the 16 bytes of the block's scales, beside 128 of codes.
    const double most = type == DType::q4_k ? 256.0 / 144 : 1.0;
    EXPECT_LE(static_cast<double>(loaded), most * static_cast<double>(unique * kRows / 64)) << dtype_name(type);
    EXPECT_GE(loaded, unique);
  }
}

// Many rows take x from threadgroup memory, and may leave the slices to a second dispatch: the same bits again.
TEST(MetalLinearShared, BitsAreThoseOfFewRows) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 75, 32 * 16, 51), up = stored_matrix(DType::f16, 75, 32 * 16, 52);
  for (const bool gated : {false, true}) {
    Product p = product(*w, 70);
    p.in = normal_floats(70 * w->spec.cols, 7, 0.02f);
    p.bias = normal_floats(75, 3);
    if (gated) {
      p.up = up.get();
      p.shape.activation = ActivationKind::silu;
    }
    p.variant = LinearVariant{.matrix = gated ? 1 : 2, .unroll = 1};
    const std::vector<std::byte> want = run(watched(), p);
    check(p, want, "each simdgroup a slice");
    for (const int unroll : soak() ? std::vector{1, 2} : std::vector{gated ? 1 : 2}) {
      p.variant->shared = unroll == 2 && gated ? 2 : 4;  // what an Apple GPU has threadgroup memory for
      p.variant->unroll = unroll;
      p.variant->split = !gated && unroll == 2;
      if (p.variant->split) p.variant->matrix = 3;
      EXPECT_EQ(run(watched(), p), want) << "gated " << gated << ", unroll " << unroll;
    }
    if (gated && !soak()) continue;
    Product fewer = slice(p, 5, 30);
    fewer.variant->unroll = 2;
    EXPECT_EQ(run(watched(), fewer), rows_of(want, 70, 5, 30)) << "30 rows";
  }
}

// The second dispatch adds to what is there.
TEST(MetalLinearShared, SplitRowsAddToTheResidual) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 75, 32 * 16, 51);
  Product p = product(*w, 20);
  p.shape.out = DType::f32;
  p.shape.accumulate = true;
  p.residual = normal_floats(20 * 75, 22, 3.0f);
  p.bias = normal_floats(75, 23);
  p.variant = LinearVariant{.matrix = 2, .unroll = 1};
  const std::vector<std::byte> want = run(watched(), p);
  check(p, want, "accumulated");
  p.variant->shared = 4;
  p.variant->split = true;
  EXPECT_EQ(run(watched(), p), want);
}

// Few rows of blocks that share x: slices one after another, the last one shorter, or one a threadgroup. Some of the
// simdgroups have no outputs.
TEST(MetalLinearShared, BlocksHaveTheBitsOfSlices) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::q4_k, 45, 256 * 9, 53), up = stored_matrix(DType::q4_k, 45, 256 * 9, 54);
  for (const bool gated : {false, true}) {
    Product p = product(*w, 13);
    p.bias = normal_floats(45, 3);
    if (gated) {
      p.up = up.get();
      p.shape.activation = ActivationKind::silu;
      p.in = normal_floats(13 * w->spec.cols, 7, 0.02f);
    }
    p.variant = LinearVariant{};
    const std::vector<std::byte> want = run(watched(), p);
    check(p, want, "unit by unit");
    Product one = slice(p, 4, 1);
    p.variant = LinearVariant{.unroll = 2, .shared = 4};
    ASSERT_TRUE(fits(p.shape, *p.variant, kNvidiaFamily));
    EXPECT_EQ(run(watched(), p), want) << "all columns";
    if (gated && !soak()) continue;
    p.variant->split = !gated;
    p.variant->matrix = gated ? 1 : 2;
    EXPECT_EQ(run(watched(), p), want) << "two panels";
    one.variant = p.variant;
    EXPECT_EQ(run(watched(), one), rows_of(want, 13, 4, 1)) << "alone";
  }
}

// The same of bytes, 256 columns a turn.
TEST(MetalLinearShared, BytesHaveTheBitsOfSlices) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::q8_0, 45, 256 * 3, 53);
  Product p = product(*w, 7);
  p.bias = normal_floats(45, 3);
  p.variant = LinearVariant{};
  const std::vector<std::byte> want = run(watched(), p);
  check(p, want, "unit by unit");
  p.variant = LinearVariant{.matrix = 2, .unroll = 4, .shared = 3};
  ASSERT_TRUE(fits(p.shape, *p.variant, kNvidiaFamily));
  EXPECT_EQ(run(watched(), p), want);
}

// 9 to 16 rows of numbers: several simdgroups of a slice in a threadgroup, some of which have no outputs, and x shared.
TEST(MetalLinearShared, SixteenRowsHaveTheBitsOfSlices) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 75, 64 * 3, 51);
  Product p = product(*w, 13);
  p.bias = normal_floats(75, 3);
  p.variant = LinearVariant{.matrix = 2, .unroll = 1};
  const std::vector<std::byte> want = run(watched(), p);
  check(p, want, "one simdgroup a slice");
  p.variant = LinearVariant{.matrix = 2, .unroll = 2, .sets = 3, .crowd = 768};
  ASSERT_TRUE(fits(p.shape, *p.variant, kNvidiaFamily));
  EXPECT_EQ(run(watched(), p), want) << "three a slice";
  p.variant = LinearVariant{.matrix = 2, .unroll = 2, .shared = 3};
  ASSERT_TRUE(fits(p.shape, *p.variant, kNvidiaFamily));
  EXPECT_EQ(run(watched(), p), want) << "x shared";
}

// Every way out.
TEST(MetalLinearOut, AddsToTheResidual) {
  const auto w = stored_matrix(DType::q8_0, 45, 96, 21);
  Product p = product(*w, 40);
  p.shape.out = DType::f32;
  p.shape.accumulate = true;
  p.residual = normal_floats(40 * 45, 22, 3.0f);
  p.bias = normal_floats(45, 23);
  check(p, run(watched(), p), "accumulated");
}

TEST(MetalLinearOut, LogitsAreFloats) {
  const auto w = stored_matrix(DType::f16, 77, 80, 24);
  Product p = product(*w, 3);
  p.shape.out = DType::f32;
  check(p, run(watched(), p), "logits");
}

TEST(MetalLinearOut, GatesWithEveryActivation) {
  SKIP_WHEN_SANITIZED();
  for (ActivationKind kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}) {
    const auto gate = stored_matrix(DType::q4_0, 45, 96, 25);
    const auto up = stored_matrix(DType::q4_0, 45, 96, 26);
    Product p = product(*gate, 5);
    p.in = normal_floats(5 * 96, 7, 1.0f);  // sums far into both tails
    p.up = up.get();
    p.shape.activation = kind;
    p.bias = normal_floats(45, 27);
    p.bias_up = normal_floats(45, 28);
    check(p, run(watched(), p), "gated");
  }
}

TEST(MetalLinearOut, GatesMatricesOfTwoFormats) {
  SKIP_WHEN_SANITIZED();
  const auto gate = stored_matrix(DType::q4_k, 40, 256, 29);
  const auto up = stored_matrix(DType::f16, 40, 256, 30);
  Product p = product(*gate, 36);
  p.up = up.get();
  p.shape.format_up = DType::f16;
  p.shape.activation = ActivationKind::silu;
  const std::vector<std::byte> got = run(watched(), p);
  check(p, got, "two formats");
  EXPECT_EQ(run(watched(), slice(p, 7, 2)), rows_of(got, 36, 7, 2)) << "2 rows";
}

TEST(MetalLinearOut, TakesAndGivesOtherActivations) {
  SKIP_WHEN_SANITIZED();
  for (const auto& [act, type] :
       {std::pair(DType::bf16, DType::bf16), {DType::bf16, DType::q4_1}, {DType::f32, DType::f16}}) {
    const auto w = stored_matrix(type, 40, 96, 31);
    const Product p = product(*w, 37, act);
    const std::vector<std::byte> got = run(watched(), p);
    check(p, got, std::string(dtype_name(act)));
    EXPECT_EQ(run(watched(), slice(p, 30, 4)), rows_of(got, 37, 30, 4)) << dtype_name(act);
  }
}

// A number that is not finite stays in its row, slices or not.
TEST(MetalLinearOut, KeepsNaNsInTheirRows) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 45, 32 * 11, 33);
  for (const int64_t rows : {5, 40}) {
    Product p = product(*w, rows);
    const std::vector<std::byte> want = run(rig(Mode::fast), p);
    p.in[static_cast<size_t>(2 * p.shape.cols + 5)] = NAN;
    p.in[static_cast<size_t>(3 * p.shape.cols + 350)] = INFINITY;
    const std::vector<std::byte> got = run(rig(Mode::fast), p);
    EXPECT_EQ(rows_of(got, rows, 0, 2), rows_of(want, rows, 0, 2));
    EXPECT_EQ(rows_of(got, rows, 4, rows - 4), rows_of(want, rows, 4, rows - 4));
    EXPECT_TRUE(std::isnan(floats(p.shape.out, rows_of(got, rows, 2, 1))[0]));
  }
}

// Neither the order of threads nor who watches them shows in the bits.
class MetalLinearStrict : public testing::TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, MetalLinearStrict,
                         testing::ValuesIn(soak() ? std::vector<uint64_t>{1, 2, 3, 4} : std::vector<uint64_t>{3}));

TEST_P(MetalLinearStrict, IsClean) {
  SKIP_WHEN_SANITIZED();
  for (DType type : {DType::q4_1, DType::f16, DType::q5_k}) {
    const int64_t cols = type == DType::f16 ? 70 : dtype_info(type).block_size;
    const auto w = stored_matrix(type, 35, cols, 41);
    const auto up = stored_matrix(type, 35, cols, 42);
    Product p = product(*w, 36);
    p.up = up.get();
    p.shape.activation = ActivationKind::silu;
    p.in = normal_floats(36 * cols, 7, 0.02f);  // products of two sums must fit a half
    check(p, run(rig(Mode::strict, GetParam()), p), "gated");
    const Product few = product(*w, 2);
    EXPECT_EQ(run(rig(Mode::strict, GetParam()), few), run(rig(Mode::fast), few)) << "the order of threads shows";
    if (!soak()) break;
  }
}

}  // namespace
}  // namespace ingot::metal
