#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "metal_linear_rig.h"

// The matrix kernels of the Metal device against double precision: every format, ragged sizes, every epilogue; and what
// they promise beside: a row's bits do not depend on its batch, and weights are loaded once for all rows.
namespace ingot::metal {
namespace {

using test::floats;
using test::MetalRig;
using test::normal_floats;
using test::stored;
using test::stored_matrix;
using test::StoredMatrix;

MetalRig& rig(softmetal::Mode mode, uint64_t seed = 0) {
  static std::map<std::pair<int, uint64_t>, std::unique_ptr<MetalRig>> rigs;
  auto& one = rigs[{static_cast<int>(mode), seed}];
  softmetal::Options options = softmetal::options();
  options.mode = mode;
  options.seed = seed;
  softmetal::set_options(options);
  if (!one) one = std::make_unique<MetalRig>(options);
  return *one;
}

constexpr DType kFormats[] = {DType::f32,  DType::f16,  DType::bf16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1,
                              DType::q8_0, DType::q2_k, DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k};

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
  auto* pipeline = rig.pipeline(plan.kernel, kLinearFirstConstant, plan.constants, 4);
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
    encoder->setThreadgroupMemoryLength(plan.threadgroup_bytes, 0);
    encoder->dispatchThreadgroups(MTL::Size(plan.groups, 1, 1), MTL::Size(plan.threads, 1, 1));
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
        // Block formats are rounded to half in a tile when the activations are.
        const bool rounds = tiled && p.shape.in == DType::f16 && is_block_quantized(w.tensor.dtype);
        error = size * (4e-6 + (rounds ? 0x1p-11 : 0.0));
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

TEST_P(MetalLinear, FewRowsMatchDouble) {
  for (int64_t blocks : {1, 3}) {
    const int64_t cols = cols_of(GetParam(), blocks);
    const auto w = stored_matrix(GetParam(), 37, cols, 1);
    for (int64_t rows : {1, 3, 16, 21}) {
      Product p = product(*w, rows, rows);
      p.bias = normal_floats(37, 3);
      check(p, run(rig(softmetal::Mode::fast), p), "cols " + std::to_string(cols));
    }
  }
}

TEST_P(MetalLinear, TilesMatchDouble) {
  for (int64_t blocks : {1, 3}) {
    const int64_t cols = cols_of(GetParam(), blocks);
    const auto w = stored_matrix(GetParam(), 70, cols, 2);
    for (int64_t rows : {1, 33, 70}) {
      Product p = product(*w, rows, 0);
      p.bias = normal_floats(70, 3);
      check(p, run(rig(softmetal::Mode::fast), p), "cols " + std::to_string(cols));
    }
  }
}

}  // namespace
}  // namespace ingot::metal
