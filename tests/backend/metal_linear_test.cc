#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "metal_linear_rig.h"
#include "soak.h"

// The matrix kernels of the Metal device against double precision: every format, ragged sizes, every epilogue; and what
// they promise beside: a row's bits do not depend on its batch, and weights are loaded once for all rows.
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

Product product(const StoredMatrix& weight, int64_t rows, int64_t decode_rows, DType act = DType::f16) {
  Product p;
  p.weight = &weight;
  p.shape.format = p.shape.format_up = weight.tensor.dtype;
  p.shape.rows = rows;
  p.shape.cols = weight.spec.cols;
  p.shape.outputs = p.shape.out_stride = weight.spec.rows;
  p.shape.decode_rows = decode_rows;
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
    if (bias) encoder->setBuffer(bias.get(), 0, 3);
    if (bias_up) encoder->setBuffer(bias_up.get(), 0, 4);
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
// the sizes of the products), of the weights to the tiles' type, and of the output to its own.
void check(const Product& p, const std::vector<std::byte>& bytes, const std::string& what) {
  const std::vector<float> out = floats(p.shape.out, bytes);
  const std::vector<float> in = floats(p.shape.in, stored(p.shape.in, p.in));
  ASSERT_EQ(out.size(), static_cast<size_t>(p.shape.rows * p.shape.outputs));
  for (int64_t r = 0; r < p.shape.rows; ++r) {
    const bool tiled = p.shape.decode_rows < 0 ? p.shape.rows > 16 : r >= p.shape.decode_rows;
    for (int64_t o = 0; o < p.shape.outputs; ++o) {
      const size_t at = static_cast<size_t>(r * p.shape.outputs + o);
      auto dot = [&](const StoredMatrix& w, const std::vector<float>& bias, double& error) {
        double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(o)], size = std::fabs(sum);
        for (int64_t k = 0; k < p.shape.cols; ++k) {
          const double term = w.at(o, k) * in[static_cast<size_t>(r * p.shape.cols + k)];
          sum += term;
          size += std::fabs(term);
        }
        // Block formats are rounded to half in a tile when the activations are, and on the matrix unit, where scales
        // are rounded too.
        const bool rounds = tiled && p.shape.in == DType::f16 && is_block_quantized(w.tensor.dtype);
        const bool matrix = p.variant && p.variant->matrix > 0 && is_block_quantized(w.tensor.dtype);
        error = size * (4e-6 + (matrix ? 0x1p-10 : rounds ? 0x1p-11 : 0.0));
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

// A length that suits the format, and is odd where it may be.
int64_t cols_of(DType type, int64_t blocks) {
  return is_block_quantized(type) ? blocks * dtype_info(type).block_size : blocks * 37;
}

class MetalLinear : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinear, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

// Rows one by one and in tiles, in one dispatch: groups of rows and of outputs, whole and cut.
TEST_P(MetalLinear, MatchesDouble) {
  const int64_t cols = cols_of(GetParam(), 3);
  const auto w = stored_matrix(GetParam(), 70, cols, 1);
  Product p = product(*w, 19 + 70, 19);
  p.bias = normal_floats(70, 3);
  check(p, run(watched(), p), "cols " + std::to_string(cols));
}

TEST_P(MetalLinear, MatchesDoubleInEverySize) {
  if (!soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  for (int64_t blocks : {1, 3}) {
    const int64_t cols = cols_of(GetParam(), blocks);
    const auto w = stored_matrix(GetParam(), 70, cols, 2);
    for (int64_t rows : {1, 3, 21, 33, 70})
      for (const bool few : {false, true}) {
        Product p = product(*w, rows, few ? rows : 0);
        p.bias = normal_floats(70, 3);
        check(p, run(watched(), p), "cols " + std::to_string(cols));
      }
  }
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
    const Product p = product(*w, rows, rows);
    check(p, run(rig(Mode::count), p), std::to_string(rows) + " rows");
    uint64_t loaded = 0, unique = 0;
    for (const softmetal::Traffic& t : softmetal::take_traffic())
      for (const auto& buffer : t.buffers)
        if (buffer.label == "weight" && !t.kernel.starts_with("a copy")) {
          loaded += buffer.loaded;
          unique += buffer.unique_loaded;
        }
    EXPECT_EQ(unique, w->packed.size()) << rows << " rows";
    // Scales of a block of 256 are shared by lanes that each load them.
    EXPECT_LE(static_cast<double>(loaded), 1.35 * static_cast<double>(unique)) << rows << " rows";
  }
}

std::vector<std::byte> rows_of(const std::vector<std::byte>& bytes, int64_t rows, int64_t first, int64_t count) {
  const auto each = static_cast<int64_t>(bytes.size()) / rows;
  return {bytes.begin() + first * each, bytes.begin() + (first + count) * each};
}

// The same product of rows [first, first + count) of p.
Product slice(const Product& p, int64_t first, int64_t count, int64_t decode_rows) {
  Product s = p;
  s.shape.rows = count;
  s.shape.decode_rows = decode_rows;
  s.in.assign(p.in.begin() + first * p.shape.cols, p.in.begin() + (first + count) * p.shape.cols);
  if (!p.residual.empty())
    s.residual.assign(p.residual.begin() + first * p.shape.outputs,
                      p.residual.begin() + (first + count) * p.shape.outputs);
  return s;
}

class MetalLinearBits : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinearBits,
                         testing::ValuesIn(soak() ? std::vector{DType::f16, DType::q4_1, DType::q6_k}
                                                  : std::vector{DType::f16, DType::q4_1}),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST_P(MetalLinearBits, OfDecodeRowsDoNotDependOnTheirBatch) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(GetParam(), 45, cols_of(GetParam(), 5), 11);
  const Product all = product(*w, 40, 40);
  const std::vector<std::byte> want = run(watched(), all);
  // Each size that kernels are made for; f16 has no blocks, and few of them will do.
  for (int64_t rows : soak()                     ? std::vector<int64_t>{1, 2, 3, 4, 5, 7, 8, 9, 11, 15, 16, 17, 33}
                      : GetParam() == DType::f16 ? std::vector<int64_t>{3, 33}
                                                 : std::vector<int64_t>{1, 7, 33}) {
    const int64_t first = rows * 5 % (40 - rows);
    EXPECT_EQ(run(watched(), slice(all, first, rows, rows)), rows_of(want, 40, first, rows)) << rows << " rows";
  }
  // Beside prefill rows, in one dispatch.
  for (int64_t decode : soak() ? std::vector<int64_t>{1, 6, 16, 18} : std::vector<int64_t>{6, 18}) {
    const std::vector<std::byte> mixed = run(watched(), slice(all, 2, 37, decode));
    EXPECT_EQ(rows_of(mixed, 37, 0, decode), rows_of(want, 40, 2, decode)) << decode << " decode rows";
  }
}

TEST_P(MetalLinearBits, OfPrefillRowsDoNotDependOnTheirChunk) {
  SKIP_WHEN_SANITIZED();
  if (GetParam() == DType::f16 && !soak()) GTEST_SKIP() << "INGOT_SOAK=1";  // tiles are the same for all formats
  const auto w = stored_matrix(GetParam(), 70, cols_of(GetParam(), 5), 12);
  const Product all = product(*w, 80, 0);
  const std::vector<std::byte> want = run(watched(), all);
  for (int64_t rows : soak() ? std::vector<int64_t>{1, 7, 31, 33, 65} : std::vector<int64_t>{7, 65}) {
    const int64_t first = rows * 3 % (80 - rows);
    EXPECT_EQ(run(watched(), slice(all, first, rows, 0)), rows_of(want, 80, first, rows)) << rows << " rows";
  }
  const std::vector<std::byte> mixed = run(watched(), slice(all, 3, 50, 5));
  EXPECT_EQ(rows_of(mixed, 50, 5, 45), rows_of(want, 80, 8, 45));
}

TEST_P(MetalLinearBits, DoNotDependOnTheVariant) {
  SKIP_WHEN_SANITIZED();
  if (GetParam() == DType::f16 && !soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  const auto w = stored_matrix(GetParam(), 45, cols_of(GetParam(), 5), 13);
  Product p = product(*w, 4, 4);
  const std::vector<std::byte> want = run(watched(), p);
  check(p, want, "the table's variant");
  const int lanes = linear_lanes(GetParam(), w->spec.cols);
  std::vector<LinearVariant> variants = {{2, lanes, 2, 8}, {4, lanes, 3, 2}, {1, lanes, 1, 1}};
  std::vector<int> others = {32, 1};
  if (!soak()) variants.pop_back(), others.pop_back();
  for (const LinearVariant& v : variants) {
    p.variant = v;
    EXPECT_EQ(run(watched(), p), want) << v.outputs << " outputs, unroll " << v.unroll;
  }
  for (int other : others) {  // another order of additions: other bits, the same sums
    p.variant = LinearVariant{2, other, 1, 4};
    check(p, run(watched(), p), std::to_string(other) + " lanes");
  }
}

// Few rows on the matrix unit: any number of rows, cut in any way, gives the same bits.
class MetalLinearMatrix : public testing::TestWithParam<DType> {};
#ifdef INGOT_SANITIZED
constexpr DType kMatrixFormats[] = {DType::f16};
#else
constexpr DType kMatrixFormats[] = {DType::f16, DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::iq4_nl};
#endif
INSTANTIATE_TEST_SUITE_P(Formats, MetalLinearMatrix, testing::ValuesIn(kMatrixFormats),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

LinearVariant matrix_variant(const Product& p, int unroll, int matrix) {
  const int slices = linear_slices(p.shape.format, p.shape.cols, p.shape.outputs);
  return {.lanes = slices, .unroll = unroll, .simdgroups = slices, .matrix = matrix};
}

TEST_P(MetalLinearMatrix, BitsDependOnNeitherBatchNorVariant) {
  SKIP_WHEN_SANITIZED();
  if (GetParam() != DType::f16 && GetParam() != DType::q4_k && !soak()) GTEST_SKIP() << "INGOT_SOAK=1";
  const auto w = stored_matrix(GetParam(), 45, GetParam() == DType::f16 ? 32 * 11 : 256 * 3, 11);
  Product all = product(*w, 15, 15);
  ASSERT_TRUE(fits_matrix(all.shape));
  all.variant = matrix_variant(all, 1, 1);
  const std::vector<std::byte> want = run(watched(), all);
  check(all, want, "15 rows");
  Product one = slice(all, 3, 1, 1);
  one.variant->unroll = GetParam() == DType::q8_0 ? 4 : 2;  // blocks of 256 columns
  // An odd number of panels, most of them not there the second time; those of blocks take minutes to compile here.
  if (GetParam() == DType::f16) one.variant->matrix = 5;
  EXPECT_EQ(run(watched(), one), rows_of(want, 15, 3, 1)) << "alone";
  if (GetParam() != DType::f16 && GetParam() != DType::q4_k) return;  // each kernel takes long to compile
  Product beside = slice(all, 2, 12, 6);
  beside.variant->matrix = 2;
  const std::vector<std::byte> mixed = run(watched(), beside);
  EXPECT_EQ(rows_of(mixed, 12, 0, 6), rows_of(want, 15, 2, 6)) << "beside prefill rows";
}

TEST_P(MetalLinearMatrix, IsCleanAndGates) {
  SKIP_WHEN_SANITIZED();
  const int64_t cols = GetParam() == DType::f16 ? 96 : 256;
  const auto w = stored_matrix(GetParam(), 21, cols, 41), up = stored_matrix(GetParam(), 21, cols, 42);
  Product p = product(*w, 5, 5);
  if (GetParam() == DType::f16 || GetParam() == DType::q4_k || soak()) {  // each kernel takes long to compile
    p.up = up.get();
    p.shape.activation = ActivationKind::silu;
  }
  p.in = normal_floats(5 * cols, 7, 0.02f);
  p.variant = matrix_variant(p, 2, 1);
  check(p, run(watched(), p), "gated");
}

// Many rows take x from threadgroup memory, and may leave the slices to a second dispatch: the same bits again.
TEST(MetalLinearShared, BitsAreThoseOfFewRows) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 75, 32 * 16, 51), up = stored_matrix(DType::f16, 75, 32 * 16, 52);
  for (const bool gated : {false, true}) {
    Product p = product(*w, 70, 70);
    p.in = normal_floats(70 * w->spec.cols, 7, 0.02f);
    p.bias = normal_floats(75, 3);
    if (gated) {
      p.up = up.get();
      p.shape.activation = ActivationKind::silu;
    }
    p.variant = matrix_variant(p, 1, gated ? 1 : 2);
    const std::vector<std::byte> want = run(watched(), p);
    check(p, want, "each simdgroup a slice");
    for (const int unroll : soak() ? std::vector{1, 2} : std::vector{gated ? 1 : 2}) {
      p.variant->shared = true;
      p.variant->unroll = unroll;
      p.variant->split = !gated && unroll == 2;
      p.variant->simdgroups = unroll == 2 && gated ? 2 : 4;  // what an Apple GPU has threadgroup memory for
      if (p.variant->split) p.variant->matrix = 3;
      EXPECT_EQ(run(watched(), p), want) << "gated " << gated << ", unroll " << unroll;
    }
    if (gated && !soak()) continue;
    Product fewer = slice(p, 5, 30, 30);
    fewer.variant->unroll = 2;
    EXPECT_EQ(run(watched(), fewer), rows_of(want, 70, 5, 30)) << "30 rows";
  }
}

// The second dispatch adds to what is there.
TEST(MetalLinearShared, SplitRowsAddToTheResidual) {
  SKIP_WHEN_SANITIZED();
  const auto w = stored_matrix(DType::f16, 75, 32 * 16, 51);
  Product p = product(*w, 20, 20);
  p.shape.out = DType::f32;
  p.shape.accumulate = true;
  p.residual = normal_floats(20 * 75, 22, 3.0f);
  p.bias = normal_floats(75, 23);
  p.variant = matrix_variant(p, 1, 2);
  const std::vector<std::byte> want = run(watched(), p);
  check(p, want, "accumulated");
  p.variant->shared = p.variant->split = true;
  p.variant->simdgroups = 4;
  EXPECT_EQ(run(watched(), p), want);
}

// Every way out, in both ways of computing.
TEST(MetalLinearOut, AddsToTheResidual) {
  const auto w = stored_matrix(DType::q8_0, 45, 96, 21);
  Product p = product(*w, 40, 5);
  p.shape.out = DType::f32;
  p.shape.accumulate = true;
  p.residual = normal_floats(40 * 45, 22, 3.0f);
  p.bias = normal_floats(45, 23);
  check(p, run(watched(), p), "accumulated");
}

TEST(MetalLinearOut, LogitsAreFloats) {
  const auto w = stored_matrix(DType::f16, 77, 80, 24);
  Product p = product(*w, 3, 3);
  p.shape.out = DType::f32;
  check(p, run(watched(), p), "logits");
}

TEST(MetalLinearOut, GatesWithEveryActivation) {
  SKIP_WHEN_SANITIZED();
  for (ActivationKind kind : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}) {
    const auto gate = stored_matrix(DType::q4_0, 45, 96, 25);
    const auto up = stored_matrix(DType::q4_0, 45, 96, 26);
    Product p = product(*gate, 5, soak() ? 3 : 5);
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
  Product p = product(*gate, 36, 2);
  p.up = up.get();
  p.shape.format_up = DType::f16;
  p.shape.activation = ActivationKind::silu;
  check(p, run(watched(), p), "two formats");
}

TEST(MetalLinearOut, TakesAndGivesOtherActivations) {
  SKIP_WHEN_SANITIZED();
  for (const auto& [act, type] :
       {std::pair(DType::bf16, DType::bf16), {DType::bf16, DType::q4_1}, {DType::f32, DType::f16}}) {
    const auto w = stored_matrix(type, 40, 96, 31);
    const Product p = product(*w, 37, 4, act);
    check(p, run(watched(), p), std::string(dtype_name(act)));
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
    Product p = product(*w, 36, 3);
    p.up = up.get();
    p.shape.activation = ActivationKind::silu;
    p.in = normal_floats(36 * cols, 7, 0.02f);  // products of two sums must fit a half
    check(p, run(rig(Mode::strict, GetParam()), p), "mixed and gated");
    const Product few = product(*w, 2, 2);
    EXPECT_EQ(run(rig(Mode::strict, GetParam()), few), run(rig(Mode::fast), few)) << "the order of threads shows";
    if (!soak()) break;
  }
}

}  // namespace
}  // namespace ingot::metal
