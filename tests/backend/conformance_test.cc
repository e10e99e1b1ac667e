#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "attention_rig.h"
#include "conformance.h"
#include "core/half.h"
#include "formats/block_quant.h"
#include "harness.h"
#include "reference.h"

// Every operation of every device against the reference in double precision, over odd sizes.
namespace ingot::test {
namespace {

TEST_P(Conformance, Norm) {
  for (NormKind kind : {NormKind::rms, NormKind::layer})
    for (int64_t dim : {1, 7, 8, 33, 64, 100, 576, 577, 4096})
      for (int64_t rows : dim == 7 || dim == 577 ? std::vector<int64_t>{1, 5, 18} : std::vector<int64_t>{5}) {
        SetUp();
        const size_t n = static_cast<size_t>(rows * dim);
        RegionPlan plan;
        NormOp op;
        op.kind = kind;
        op.rows = rows;
        op.dim = dim;
        op.in = plan.take(n);
        op.out = plan.take(n);
        const std::vector<float> in = random_floats(random_, n, 3.0f);
        const std::vector<float> weight = random_floats(random_, static_cast<size_t>(dim));
        const std::vector<float> bias = random_floats(random_, static_cast<size_t>(dim));
        both([&](Backend& backend) {
          backend.create_scratch(plan.bytes());
          backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
          put(backend, op.in, in, true);
          op.weight = backend.load_vector("weight", weight);
          op.bias = kind == NormKind::layer ? backend.load_vector("bias", bias) : WeightId{};
        });
        // Both devices number their weights alike, so one op serves both.
        run(TestStep{}, [&](Backend& backend) { backend.encode(op); });
        compare(op.out, n, tolerance(*device_, 2e-6), "dim " + std::to_string(dim));
      }
}

// A norm that is added to the residual stream, or written in full precision over whatever is there.
TEST_P(Conformance, NormInFullPrecision) {
  for (const auto& [kind, added] : {std::pair(NormKind::rms, true), std::pair(NormKind::layer, true),
                                    std::pair(NormKind::rms, false), std::pair(NormKind::layer, false)}) {
    SetUp();
    constexpr int64_t kRows = 5, kDim = 77;
    RegionPlan plan;
    NormOp op;
    op.kind = kind;
    op.rows = kRows;
    op.dim = kDim;
    op.in = plan.take(kRows * kDim);
    op.out = plan.take(kRows * kDim);
    op.accumulate = added;
    op.f32_out = !added;
    const std::vector<float> in = random_floats(random_, kRows * kDim, 3.0f);
    const std::vector<float> residual = random_floats(random_, kRows * kDim, 5.0f);
    const std::vector<float> weight = random_floats(random_, kDim);
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      put(backend, op.in, in, true);
      put(backend, op.out, residual, true);
      op.weight = backend.load_vector("weight", weight);
    });
    run(TestStep{}, [&](Backend& backend) { backend.encode(op); });
    compare(op.out, kRows * kDim, 2e-6, added ? "added" : "written", true);
  }
}

TEST_P(Conformance, RopeTable) {
  std::vector<float> freqs;
  for (int i = 0; i < 32; ++i) freqs.push_back(static_cast<float>(std::pow(100000.0, -i / 32.0)));
  RegionPlan plan;
  TestStep step;
  for (int32_t p : {0, 1, 2, 3, 17, 511, 8191, 131071, 1000000}) {
    step.token_ids.push_back(0);
    step.positions.push_back(p);
    step.slots.push_back(0);
  }
  const size_t n = step.positions.size() * 64;
  RopeTableOp op;
  op.out = plan.take(n);
  op.factor = 1.25f;
  both([&](Backend& backend) {
    backend.create_scratch(plan.bytes());
    backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
    op.inv_freq = backend.load_vector("inv_freq", freqs);
  });
  run(step, [&](Backend& backend) { backend.encode(op); });
  compare(op.out, n, 2e-7, "rope table", true);
  // What the reference implementation of the models does at small positions: everything in float.
  const std::vector<float> table = get(*device_, op.out, n, true);
  for (size_t t = 0; t < 5; ++t)
    for (size_t i = 0; i < 32; ++i) {
      const float angle = static_cast<float>(step.positions[t]) * freqs[i];
      EXPECT_NEAR(table[(t * 32 + i) * 2], std::cos(angle) * 1.25f, 1.25e-6);
      EXPECT_NEAR(table[(t * 32 + i) * 2 + 1], std::sin(angle) * 1.25f, 1.25e-6);
    }
}

// A matrix in a stored format, with the tensor that describes it.
struct StoredMatrix {
  std::vector<std::byte> bytes;
  TensorView tensor;
  MatrixSpec spec;
};
std::unique_ptr<StoredMatrix> make_matrix(std::mt19937& random, DType type, int64_t rows, int64_t cols) {
  auto m = std::make_unique<StoredMatrix>();
  const std::vector<float> values = random_floats(random, static_cast<size_t>(rows * cols));
  m->bytes.resize(dtype_bytes(type, values.size()));
  quantize(type, values.data(), values.size(), m->bytes.data());
  m->tensor = {"matrix", type, {rows, cols}, m->bytes};
  m->spec = {"matrix", {{&m->tensor, 0}}, rows, cols};
  return m;
}

TEST_P(Conformance, Embed) {
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_1, DType::q4_0, DType::iq4_nl}) {
    SetUp();
    constexpr int64_t kVocab = 37, kHidden = 96;
    const auto table = make_matrix(random_, type, kVocab, kHidden);
    const auto positions = make_matrix(random_, DType::f32, 20, kHidden);
    TestStep step;
    for (int32_t t = 0; t < 11; ++t) {
      step.token_ids.push_back(t * 7 % 37);
      step.positions.push_back(19 - t);
      step.slots.push_back(0);
    }
    RegionPlan plan;
    EmbedOp op;
    op.out = plan.take(11 * kHidden);
    op.scale = 1.5f;
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      op.table = backend.load_matrix(table->spec);
      op.position_table = backend.load_matrix(positions->spec);
    });
    run(step, [&](Backend& backend) { backend.encode(op); });
    compare(op.out, 11 * kHidden, 1e-6, std::string(dtype_name(type)), true);
    // A stage that reads the rows from the model's file (ReadRowsOp) has the same bits.
    const std::vector<float> got = get(*device_, op.out, 11 * kHidden, true);
    std::vector<float> row(kHidden), position(kHidden);
    for (size_t t = 0; t < 11; ++t) {
      const auto at = [&](const TensorView& tensor, int32_t index) {
        return tensor.data.data() + dtype_bytes(tensor.dtype, static_cast<size_t>(index) * kHidden);
      };
      dequantize(type, at(table->tensor, step.token_ids[t]), kHidden, row.data());
      dequantize(DType::f32, at(positions->tensor, step.positions[t]), kHidden, position.data());
      for (size_t i = 0; i < kHidden; ++i) row[i] = row[i] * op.scale + position[i];
      EXPECT_EQ(std::memcmp(row.data(), &got[t * kHidden], kHidden * sizeof(float)), 0) << dtype_name(type);
    }
  }
}

// The matrix products have a test of their own with every format and shape; here they run as operations of a step.
TEST_P(Conformance, Linear) {
  struct Case {
    DType type;
    int64_t rows;
  };
  std::vector<Case> cases = {{DType::bf16, 3}, {DType::q4_1, 1}, {DType::f32, 19}, {DType::q8_0, 19}};
  if (!metal() || soak()) {
    cases.clear();
    for (DType type : {DType::f32, DType::bf16, DType::q8_0, DType::q4_1})
      for (int64_t rows : {1, 3, 19}) cases.push_back({type, rows});
  }
  if (bf16()) std::reverse(cases.begin(), cases.end());
  for (const auto& [type, rows] : few(bf16() ? 2 : 4, cases)) {
    SetUp();
    constexpr int64_t kIn = 96, kOut = 45;
    const auto weight = make_matrix(random_, type, kOut, kIn);
    const std::vector<float> bias = random_floats(random_, kOut);
    const std::vector<float> in = random_floats(random_, static_cast<size_t>(rows * kIn), 0.1f);
    const std::vector<float> residual = random_floats(random_, static_cast<size_t>(rows * kOut));
    RegionPlan plan;
    LinearOp set;
    set.rows = rows;
    set.in = plan.take(in.size());
    set.out = plan.take(residual.size());
    LinearOp add = set;
    add.out = plan.take(residual.size());
    add.accumulate = true;
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      set.weight = add.weight = backend.load_matrix(weight->spec);
      set.bias = backend.load_vector("bias", bias);
      put(backend, set.in, in);
      put(backend, add.out, residual, true);
    });
    run(TestStep{}, [&](Backend& backend) {
      backend.encode(set);
      backend.encode(add);
    });
    // Block formats multiply activations rounded to 8 bits.
    const double limit = is_block_quantized(type) ? 2e-2 : tolerance(*device_, type == DType::bf16 ? 1e-2 : 1e-5);
    compare(set.out, residual.size(), limit, std::string(dtype_name(type)));
    compare(add.out, residual.size(), limit, std::string(dtype_name(type)) + " accumulated", true);
  }
}

// Products of as many rows as a device may hand to a library: right, and the bits of few rows.
TEST_P(Conformance, PrefillProducts) {
  // Without a library these are the products of other tests, but for the activation.
  const char* library = std::getenv("SOFTMETAL_GEMM");
  const size_t types = library != nullptr && std::string(library) == "all" ? (bf16() ? 2 : 4) : 1;
  std::vector<DType> list = {DType::q8_0, DType::f16, DType::bf16, DType::q4_1};
  if (bf16()) std::swap(list[0], list[2]);
  for (DType type : few(types, list)) {
    SetUp();
    constexpr int64_t kIn = 352, kOut = 44, kRows = 21;
    const auto weight = make_matrix(random_, type, kOut, kIn), up = make_matrix(random_, type, kOut, kIn);
    const std::vector<float> bias = random_floats(random_, kOut), bias_up = random_floats(random_, kOut);
    const std::vector<float> in = random_floats(random_, kRows * kIn, 0.1f);
    const std::vector<float> residual = random_floats(random_, kRows * kOut);
    RegionPlan plan;
    LinearOp set;
    set.rows = kRows;
    set.in = plan.take(in.size());
    set.out = plan.take(residual.size());
    LinearOp biased = set, add = set, activated = set;
    biased.out = plan.take(residual.size());
    add.out = plan.take(residual.size());
    add.accumulate = true;
    activated.out = plan.take(residual.size());
    activated.activation = ActivationKind::gelu;
    LinearOp gated = set;
    gated.out = plan.take(residual.size());
    gated.activation = ActivationKind::silu;
    LinearOp few_set = set, few_gated = gated;
    few_set.rows = few_gated.rows = 5;
    few_set.out = plan.take(residual.size());
    few_gated.out = plan.take(residual.size());
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      set.weight = biased.weight = add.weight = activated.weight = gated.weight = few_set.weight = few_gated.weight =
          backend.load_matrix(weight->spec);
      gated.up = few_gated.up = backend.load_matrix(up->spec);
      biased.bias = gated.bias = few_gated.bias = backend.load_vector("bias", bias);
      gated.up_bias = few_gated.up_bias = backend.load_vector("up_bias", bias_up);
      put(backend, set.in, in);
      put(backend, add.out, residual, true);
    });
    run(TestStep{}, [&](Backend& backend) {
      for (const LinearOp* op : {&set, &biased, &add, &activated, &gated, &few_set, &few_gated}) backend.encode(*op);
    });
    const double limit = is_block_quantized(type) ? 4e-2 : tolerance(*device_, 2e-2);  // inputs may become bf16
    const std::string what(dtype_name(type));
    compare(set.out, residual.size(), limit, what);
    compare(biased.out, residual.size(), limit, what + ", with bias");
    compare(add.out, residual.size(), limit, what + ", accumulated", true);
    compare(activated.out, residual.size(), limit, what + ", activated");
    compare(gated.out, residual.size(), 4 * limit, what + ", gated");
    EXPECT_EQ(get(*device_, few_set.out, 5 * kOut), get(*device_, set.out, 5 * kOut)) << what;
    EXPECT_EQ(get(*device_, few_gated.out, 5 * kOut), get(*device_, gated.out, 5 * kOut)) << what << ", gated";
  }
}

// Shapes that suit the matrix unit, and numbers of rows that take each of its ways.
TEST_P(Conformance, LinearOfDecodeRows) {
  const bool gpu = device_->info().name == "cuda";
  struct Shape {
    int64_t rows, cols;
  };
  std::vector<Shape> shapes = {{1, 512}, {13, 512}};
  if (gpu) shapes.insert(shapes.end(), {{40, 1024}, {64, 16384}, {70, 2048}});
  const DType plain = bf16() ? DType::bf16 : DType::f16;
  if (bf16()) std::reverse(shapes.begin(), shapes.end());
  for (DType type : few<DType>(1, {plain, DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::iq4_nl}))
    for (const auto& [rows, cols] : few(1, shapes)) {
      SetUp();
      constexpr int64_t kOut = 45;
      const auto weight = make_matrix(random_, type, kOut, cols);
      const auto up = make_matrix(random_, type, kOut, cols);
      const std::vector<float> bias = random_floats(random_, kOut);
      const std::vector<float> in =
          random_floats(random_, static_cast<size_t>(rows * cols), 0.5f / std::sqrt(static_cast<float>(cols)));
      const std::vector<float> residual = random_floats(random_, static_cast<size_t>(rows * kOut));
      RegionPlan plan;
      LinearOp add;
      add.rows = rows;
      add.in = plan.take(in.size());
      add.out = plan.take(residual.size());
      add.accumulate = true;
      LinearOp gated;
      gated.rows = rows;
      gated.activation = ActivationKind::silu;
      gated.in = add.in;
      gated.out = plan.take(residual.size());
      both([&](Backend& backend) {
        backend.create_scratch(plan.bytes());
        backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
        add.weight = gated.weight = backend.load_matrix(weight->spec);
        gated.up = backend.load_matrix(up->spec);
        add.bias = backend.load_vector("bias", bias);
        put(backend, add.in, in);
        put(backend, add.out, residual, true);
      });
      run(TestStep{}, [&](Backend& backend) {
        backend.encode(add);
        backend.encode(gated);
      });
      const double limit = is_block_quantized(type) ? 2e-2 : tolerance(*device_, 1e-2);
      const std::string what = fmt::format("{}, {} rows of {}", dtype_name(type), rows, cols);
      compare(add.out, residual.size(), limit, what, true);
      compare(gated.out, residual.size(), limit, what + ", gated");
    }
}

TEST_P(Conformance, GatedLinear) {
  for (ActivationKind activation :
       few<ActivationKind>(bf16() ? 1 : 3, {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}))
    for (int64_t rows : few<int64_t>(
             1, activation == ActivationKind::gelu ? std::vector<int64_t>{6, 1} : std::vector<int64_t>{1, 6})) {
      SetUp();
      constexpr int64_t kIn = 64, kOut = 35;
      const auto gate = make_matrix(random_, DType::f32, kOut, kIn);
      const auto up = make_matrix(random_, DType::f32, kOut, kIn);
      const std::vector<float> in = random_floats(random_, static_cast<size_t>(rows * kIn), 0.1f);
      const std::vector<float> bias = random_floats(random_, kOut);
      RegionPlan plan;
      LinearOp op;
      op.rows = rows;
      op.activation = activation;
      op.in = plan.take(in.size());
      op.out = plan.take(static_cast<size_t>(rows * kOut));
      both([&](Backend& backend) {
        backend.create_scratch(plan.bytes());
        backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
        op.weight = backend.load_matrix(gate->spec);
        op.up = backend.load_matrix(up->spec);
        op.bias = backend.load_vector("gate_bias", bias);
        op.up_bias = backend.load_vector("up_bias", bias);
        put(backend, op.in, in);
      });
      run(TestStep{}, [&](Backend& backend) { backend.encode(op); });
      compare(op.out, static_cast<size_t>(rows * kOut), tolerance(*device_, 1e-5), "gated");
    }
}

TEST_P(Conformance, LinearWithActivation) {
  for (ActivationKind activation :
       few<ActivationKind>(bf16() ? 1 : 3, {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh}))
    for (int64_t rows : few<int64_t>(
             1, activation == ActivationKind::gelu ? std::vector<int64_t>{1, 40} : std::vector<int64_t>{40, 1})) {
      SetUp();
      constexpr int64_t kIn = 64, kOut = 35;
      const auto weight = make_matrix(random_, DType::f32, kOut, kIn);
      const std::vector<float> in = random_floats(random_, static_cast<size_t>(rows * kIn), 0.2f);
      const std::vector<float> bias = random_floats(random_, kOut);
      RegionPlan plan;
      LinearOp op;
      op.rows = rows;
      op.activation = activation;
      op.in = plan.take(in.size());
      op.out = plan.take(static_cast<size_t>(rows * kOut));
      both([&](Backend& backend) {
        backend.create_scratch(plan.bytes());
        backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
        op.weight = backend.load_matrix(weight->spec);
        op.bias = backend.load_vector("bias", bias);
        put(backend, op.in, in);
      });
      run(TestStep{}, [&](Backend& backend) { backend.encode(op); });
      compare(op.out, static_cast<size_t>(rows * kOut), tolerance(*device_, 1e-5), "activated");
    }
}

// A router reads rows of a norm as they were before the device rounded them. Of 130 experts some are so close that
// rounding to bf16 makes others the best.
TEST_P(Conformance, RoutersReadUnroundedRows) {
  constexpr int64_t kRows = 120, kDim = 96, kExperts = 130, kBest = 16;
  RegionPlan plan;
  NormOp norm{.rows = kRows, .dim = kDim, .in = plan.take(kRows * kDim), .out = plan.take(kRows * kDim)};
  norm.f32_copy = plan.take(kRows * kDim);
  LinearOp exact{.rows = kRows, .in = norm.f32_copy, .out = plan.take(kRows * kExperts), .f32_out = true};
  exact.f32_in = true;
  LinearOp rounded{.rows = kRows, .in = norm.out, .out = plan.take(kRows * kExperts), .f32_out = true};
  const auto router = make_matrix(random_, DType::bf16, kExperts, kDim);
  const std::vector<float> in = random_floats(random_, kRows * kDim, 3.0f), weight = random_floats(random_, kDim);
  both([&](Backend& backend) {
    backend.create_scratch(plan.bytes());
    backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
    put(backend, norm.in, in, true);
    norm.weight = backend.load_vector("weight", weight);
    exact.weight = rounded.weight = backend.load_matrix(router->spec);
  });
  run(TestStep{}, [&](Backend& backend) {
    backend.encode(norm);
    backend.encode(exact);
    backend.encode(rounded);
  });
  compare(norm.f32_copy, kRows * kDim, 2e-6, "rows", true);
  compare(exact.out, kRows * kExperts, 1e-5, "logits", true);
  const std::vector<float> want = get(*reference_, exact.out, kRows * kExperts);
  const auto flips = [&](const LinearOp& op) {  // rows whose best are others
    const std::vector<float> got = get(*device_, op.out, kRows * kExperts, true);
    const auto best = [&](const std::vector<float>& logits, int64_t row) {
      std::vector<int64_t> order(kExperts);
      std::iota(order.begin(), order.end(), 0);
      const float* from = logits.data() + row * kExperts;
      std::partial_sort(order.begin(), order.begin() + kBest, order.end(),
                        [from](int64_t a, int64_t b) { return from[a] > from[b]; });
      std::sort(order.begin(), order.begin() + kBest);
      return std::vector<int64_t>(order.begin(), order.begin() + kBest);
    };
    int count = 0;
    for (int64_t row = 0; row < kRows; ++row) count += best(got, row) != best(want, row) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(flips(exact), 0);
  if (bf16()) {
    EXPECT_GT(flips(rounded), 0);
  }
  RecordProperty("flips_of_rounded_rows", flips(rounded));
}

// Rows that are not rounded on their way have the same bits alone and beside others, in every format of the weights.
TEST_P(Conformance, UnroundedProducts) {
  struct Shape {
    int64_t rows, outputs, cols;
    DType type;
    bool bias;
  };
  const std::vector<Shape> shapes = {{13, 35, 1184, DType::bf16, false}, {9, 8, 45, DType::f16, true},
                                     {11, 19, 256, DType::q4_k, false},  {2, 130, 2048, DType::bf16, true},
                                     {17, 12, 96, DType::f32, false},    {8, 24, 352, DType::q8_0, false}};
  for (const Shape& s : few(bf16() ? 2 : 6, shapes)) {
    SetUp();
    if (is_block_quantized(s.type) && device_->info().name == "cpu") continue;  // it multiplies blocks as bytes
    const auto weight = make_matrix(random_, s.type, s.outputs, s.cols);
    const std::vector<float> in = random_floats(random_, static_cast<size_t>(s.rows * s.cols), 0.3f);
    const std::vector<float> bias = random_floats(random_, static_cast<size_t>(s.outputs));
    RegionPlan plan;
    LinearOp all{.rows = s.rows, .in = plan.take(in.size()), .f32_out = true};
    all.f32_in = true;
    all.out = plan.take(static_cast<size_t>(s.rows * s.outputs));
    LinearOp one = all;
    one.rows = 1;
    one.in = plan.take(static_cast<size_t>(s.cols));
    one.out = plan.take(static_cast<size_t>(s.outputs));
    const int64_t last = s.rows - 1;
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      all.weight = one.weight = backend.load_matrix(weight->spec);
      if (s.bias) all.bias = one.bias = backend.load_vector("bias", bias);
      put(backend, all.in, in, true);
      put(backend, one.in, {in.begin() + last * s.cols, in.end()}, true);
    });
    run(TestStep{}, [&](Backend& backend) {
      backend.encode(all);
      backend.encode(one);
    });
    compare(all.out, static_cast<size_t>(s.rows * s.outputs), 3e-5, "results", true);
    const std::vector<float> got = get(*device_, all.out, static_cast<size_t>(s.rows * s.outputs), true);
    const std::vector<float> alone = get(*device_, one.out, static_cast<size_t>(s.outputs), true);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.begin() + last * s.outputs)) << dtype_name(s.type);
  }
}

// A mixture of experts from the router's logits to the residual stream; every table in between is compared too.
TEST_P(Conformance, Experts) {
  struct Shape {
    int64_t rows, experts, per_token, hidden, ffn;
    DType type;
    bool normalize;
  };
  const std::vector<Shape> shapes = {{7, 5, 2, 64, 40, DType::bf16, false},  {37, 9, 4, 96, 64, DType::q8_0, true},
                                     {65, 3, 1, 32, 24, DType::f16, false},  {1, 5, 2, 64, 32, DType::f32, true},
                                     {21, 130, 8, 32, 24, DType::f16, true}, {33, 2, 1, 32, 32, DType::q4_0, true},
                                     {130, 3, 2, 64, 72, DType::f16, true},  {1, 6, 3, 64, 32, DType::bf16, true},
                                     {19, 6, 3, 256, 256, DType::q4_1, true}};
  for (const Shape& s : few(bf16() ? 1 : 7, shapes)) {
    SetUp();
    RegionPlan plan;
    const auto words = [&](int64_t n) { return plan.take(static_cast<size_t>(n)); };
    const int64_t pairs = s.rows * s.per_token;
    ExpertRoute route{s.rows, s.experts, s.per_token};
    route.ids = words(pairs);
    route.weights = words(pairs);
    route.order = words(pairs);
    route.places = words(pairs);
    route.starts = words(s.experts + 1);
    route.items = words(2 * pairs + 1);
    RouteOp routing{words(s.rows * s.experts), route, s.normalize};
    ExpertLinearOp inside{.route = route, .in = words(s.rows * s.hidden), .out = words(pairs * s.ffn)};
    ExpertLinearOp outside{.route = route, .in = inside.out, .out = words(pairs * s.hidden)};
    ExpertSumOp sum{route, s.hidden, outside.out, words(s.rows * s.hidden)};

    auto gate = make_matrix(random_, s.type, s.experts * s.ffn, s.hidden);
    auto up = make_matrix(random_, s.type, s.experts * s.ffn, s.hidden);
    // ffn columns that no block fits are f16, as in files.
    const DType down_type = s.ffn % dtype_info(s.type).block_size == 0 ? s.type : DType::f16;
    auto down = make_matrix(random_, down_type, s.experts * s.hidden, s.ffn);
    for (StoredMatrix* m : {gate.get(), up.get(), down.get()}) m->spec.groups = s.experts;
    const std::vector<float> logits = random_floats(random_, static_cast<size_t>(s.rows * s.experts), 2.0f);
    const float size = s.hidden > 100 ? 0.02f : 0.05f;  // sums of more numbers, of the same size
    const std::vector<float> in = random_floats(random_, static_cast<size_t>(s.rows * s.hidden), size);
    const std::vector<float> residual = random_floats(random_, static_cast<size_t>(s.rows * s.hidden));
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      inside.weight = backend.load_matrix(gate->spec);
      inside.up = backend.load_matrix(up->spec);
      outside.weight = backend.load_matrix(down->spec);
      put(backend, routing.logits, logits, true);
      put(backend, inside.in, in);
      put(backend, sum.out, residual, true);
    });
    run(TestStep{}, [&](Backend& backend) {
      backend.encode(routing);
      backend.encode(inside);
      backend.encode(outside);
      backend.encode(sum);
    });
    const std::string what = fmt::format("{} of {} experts, {}", s.per_token, s.experts, dtype_name(s.type));
    for (const Region& table : {route.ids, route.order, route.places}) {
      std::vector<int32_t> got(static_cast<size_t>(pairs)), want(got.size());
      device_->read_scratch({table.offset, got.size() * 4}, std::as_writable_bytes(std::span(got)));
      reference_->read_scratch({table.offset, want.size() * 4}, std::as_writable_bytes(std::span(want)));
      EXPECT_EQ(got, want) << what;
    }
    compare(route.weights, static_cast<size_t>(pairs), 2e-6, what + " weights", true);
    const double limit = is_block_quantized(s.type) ? 3e-2 : tolerance(*device_, s.type == DType::bf16 ? 1e-2 : 2e-5);
    compare(inside.out, static_cast<size_t>(pairs * s.ffn), limit, what + " inside");
    compare(outside.out, static_cast<size_t>(pairs * s.hidden), 4 * limit, what + " outside", true);
    compare(sum.out, static_cast<size_t>(s.rows * s.hidden), 4 * limit, what + " sum", true);
  }
}

TEST_P(Conformance, GatherRows) {
  constexpr int64_t kDim = 75;
  TestStep step;
  for (int32_t t = 0; t < 9; ++t) {
    step.token_ids.push_back(0);
    step.positions.push_back(t);
    step.slots.push_back(t);
  }
  for (int32_t row : {0, 3, 4, 8}) step.add_sample(row, {});
  RegionPlan plan;
  GatherRowsOp op;
  op.dim = kDim;
  op.in = plan.take(9 * kDim);
  op.out = plan.take(4 * kDim);
  const std::vector<float> in = random_floats(random_, 9 * kDim);
  both([&](Backend& backend) {
    backend.create_scratch(plan.bytes());
    backend.create_io(1 << 16, OutputLayout::of(4, 1, 1, 16));
    put(backend, op.in, in, true);
  });
  run(step, [&](Backend& backend) { backend.encode(op); });
  compare(op.out, 4 * kDim, 0.0, "gathered", true);
}

TEST_P(Conformance, BlockMoves) {
  for (KvType type : {KvType::f16, KvType::int8}) {
    SetUp();
    KvLayout kv;
    kv.layers = 3;
    kv.num_blocks = 6;
    kv.kv_heads = 2;
    kv.block_size = 8;
    kv.head_size = 24;
    kv.dtype = type;
    std::vector<std::byte> raw(static_cast<size_t>(kv.num_blocks) * kv.block_bytes());
    both([&](Backend& backend) {
      backend.create_scratch(64);
      backend.create_kv_cache(kv);
      backend.create_host_blocks(4);
      backend.create_io(4096, OutputLayout::of(1, 1, 1, 16));
      std::mt19937 random(5);
      for (int64_t layer = 0; layer < kv.layers; ++layer)
        for (bool value : {false, true}) {
          raw = encode_kv(kv, {random_floats(random, kv_rows(kv) * static_cast<size_t>(kv.head_size), 50.0f),
                               random_floats(random, kv_rows(kv))});
          backend.write_cache(layer, value, raw);
          std::vector<std::byte> back(raw.size());
          backend.read_cache(layer, value, back);
          EXPECT_EQ(raw, back) << "what was written must be read";
        }
    });
    TestStep step;
    step.zeros = {1, 4};
    step.copies = {{0, 2}, {2, 3}, {4, 5}};  // the second copies what the first made
    const auto compare = [&](const char* what) {
      run(step, [](Backend&) {});
      for (int64_t layer = 0; layer < kv.layers; ++layer)
        for (bool value : {false, true}) {
          std::vector<std::byte> want(raw.size());
          device_->read_cache(layer, value, raw);
          reference_->read_cache(layer, value, want);
          EXPECT_EQ(raw, want) << kv_type_name(type) << " layer " << layer << ", " << what;
        }
    };
    compare("zeros and copies");
    // What is saved is what was there before; what is loaded is there for the copies.
    step.saves = {{0, 3}, {4, 1}, {5, 0}};
    step.loads = {{3, 4}, {0, 1}};
    step.zeros = {0};
    step.copies = {{4, 5}};
    compare("saves and loads");
    step = {};
    step.ring = 1;
    step.loads = {{1, 0}, {3, 2}};
    compare("loads of a later step");
    // Without rows nothing stands in their way: all run beside, and the next step finds what they did.
    step = {};
    step.saves = {{2, 0}, {3, 2}};
    step.loads = {{1, 3}, {0, 4}};
    compare("saves and loads that run beside");
    step = {};
    step.ring = 1;
    step.saves = {{3, 1}};
    step.loads = {{2, 1}};
    step.copies = {{4, 0}, {1, 5}};
    compare("what they did, in the step behind");
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(devices()),
                         [](const auto& info) { return device_name(info.param); });

}  // namespace
}  // namespace ingot::test
