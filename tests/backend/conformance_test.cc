#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "attention_rig.h"
#include "core/half.h"
#include "formats/block_quant.h"
#include "harness.h"
#include "reference.h"

// Every operation of every device against the reference in double precision, over odd sizes.
namespace ingot::test {
namespace {

// Error allowed for numbers of size 1: the accumulated rounding of float arithmetic, or of a 16-bit activation.
double tolerance(const Backend& backend, double f32) {
  switch (backend.info().activation) {
    case DType::f16: return std::max(f32, 4e-3);
    case DType::bf16: return std::max(f32, 3e-2);
    default: return f32;
  }
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double limit, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0.0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    const double error =
        std::abs(static_cast<double>(got[i]) - want[i]) / std::max(1.0, std::abs(static_cast<double>(want[i])));
    if (!(error <= worst)) {
      worst = error;
      where = i;
    }
  }
  EXPECT_LE(worst, limit) << what << ": element " << where << " is " << got[where] << ", not " << want[where];
}

class Conformance : public testing::TestWithParam<DeviceCase> {
 protected:
  void SetUp() override {
    INGOT_SKIP_MISSING_DEVICE(GetParam());
    device_ = GetParam().make();
  }

  // Runs the same calls on the device and on the reference.
  template <typename F>
  void both(F&& f) {
    f(*device_);
    f(reference_);
  }
  void run(const TestStep& step, const std::function<void(Backend&)>& operations) {
    both([&](Backend& backend) { run_step(backend, step, [&] { operations(backend); }); });
  }
  void compare(Region region, size_t n, double limit, const std::string& what, bool f32 = false) {
    expect_near(get(*device_, region, n, f32), get(reference_, region, n), limit, what);
  }

  std::mt19937 random_{42};
  std::unique_ptr<Backend> device_;
  ReferenceBackend reference_;
};

TEST_P(Conformance, Norm) {
  for (NormKind kind : {NormKind::rms, NormKind::layer})
    for (int64_t dim : {1, 7, 8, 33, 64, 100, 576, 577, 4096})
      for (int64_t rows : {1, 5, 18}) {
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
          backend.create_io(4096, make_output_layout(1, 1, 1, 16));
          put(backend, op.in, in, true);
          op.weight = backend.load_vector("weight", weight);
          op.bias = kind == NormKind::layer ? backend.load_vector("bias", bias) : WeightId{};
        });
        // Both devices number their weights alike, so one op serves both.
        run(TestStep{}, [&](Backend& backend) { backend.norm(op); });
        compare(op.out, n, tolerance(*device_, 2e-6), "dim " + std::to_string(dim));
        reference_ = ReferenceBackend();
      }
}

// A norm that is added to the residual stream.
TEST_P(Conformance, NormAccumulates) {
  for (NormKind kind : {NormKind::rms, NormKind::layer}) {
    SetUp();
    constexpr int64_t kRows = 5, kDim = 77;
    RegionPlan plan;
    NormOp op;
    op.kind = kind;
    op.rows = kRows;
    op.dim = kDim;
    op.in = plan.take(kRows * kDim);
    op.out = plan.take(kRows * kDim);
    op.accumulate = true;
    const std::vector<float> in = random_floats(random_, kRows * kDim, 3.0f);
    const std::vector<float> residual = random_floats(random_, kRows * kDim, 5.0f);
    const std::vector<float> weight = random_floats(random_, kDim);
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, make_output_layout(1, 1, 1, 16));
      put(backend, op.in, in, true);
      put(backend, op.out, residual, true);
      op.weight = backend.load_vector("weight", weight);
    });
    run(TestStep{}, [&](Backend& backend) { backend.norm(op); });
    compare(op.out, kRows * kDim, 2e-6, "added", true);
    reference_ = ReferenceBackend();
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
    backend.create_io(4096, make_output_layout(1, 1, 1, 16));
    op.inv_freq = backend.load_vector("inv_freq", freqs);
  });
  run(step, [&](Backend& backend) { backend.rope_table(op); });
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
  for (DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_1, DType::q4_0}) {
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
      backend.create_io(4096, make_output_layout(1, 1, 1, 16));
      op.table = backend.load_matrix(table->spec);
      op.position_table = backend.load_matrix(positions->spec);
    });
    run(step, [&](Backend& backend) { backend.embed(op); });
    compare(op.out, 11 * kHidden, 1e-6, std::string(dtype_name(type)), true);
    reference_ = ReferenceBackend();
  }
}

// The matrix products have a test of their own with every format and shape; here they run as operations of a step.
TEST_P(Conformance, Linear) {
  for (DType type : {DType::f32, DType::bf16, DType::q8_0, DType::q4_1})
    for (int64_t rows : {1, 3, 19}) {
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
        backend.create_io(4096, make_output_layout(1, 1, 1, 16));
        set.weight = add.weight = backend.load_matrix(weight->spec);
        set.bias = backend.load_vector("bias", bias);
        put(backend, set.in, in);
        put(backend, add.out, residual, true);
      });
      run(TestStep{}, [&](Backend& backend) {
        backend.linear(set);
        backend.linear(add);
      });
      // Block formats multiply activations rounded to 8 bits.
      const double limit = is_block_quantized(type) ? 2e-2 : tolerance(*device_, type == DType::bf16 ? 1e-2 : 1e-5);
      compare(set.out, residual.size(), limit, std::string(dtype_name(type)));
      compare(add.out, residual.size(), limit, std::string(dtype_name(type)) + " accumulated", true);
      reference_ = ReferenceBackend();
    }
}

TEST_P(Conformance, GatedLinear) {
  for (ActivationKind activation : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh})
    for (int64_t rows : {1, 6}) {
      SetUp();
      constexpr int64_t kIn = 64, kOut = 35;
      const auto gate = make_matrix(random_, DType::f32, kOut, kIn);
      const auto up = make_matrix(random_, DType::f32, kOut, kIn);
      const std::vector<float> in = random_floats(random_, static_cast<size_t>(rows * kIn), 0.1f);
      const std::vector<float> bias = random_floats(random_, kOut);
      RegionPlan plan;
      GatedLinearOp op;
      op.rows = rows;
      op.activation = activation;
      op.in = plan.take(in.size());
      op.out = plan.take(static_cast<size_t>(rows * kOut));
      both([&](Backend& backend) {
        backend.create_scratch(plan.bytes());
        backend.create_io(4096, make_output_layout(1, 1, 1, 16));
        op.gate = backend.load_matrix(gate->spec);
        op.up = backend.load_matrix(up->spec);
        op.gate_bias = backend.load_vector("gate_bias", bias);
        op.up_bias = backend.load_vector("up_bias", bias);
        put(backend, op.in, in);
      });
      run(TestStep{}, [&](Backend& backend) { backend.gated_linear(op); });
      compare(op.out, static_cast<size_t>(rows * kOut), tolerance(*device_, 1e-5), "gated");
      reference_ = ReferenceBackend();
    }
}

TEST_P(Conformance, LinearWithActivation) {
  for (ActivationKind activation : {ActivationKind::silu, ActivationKind::gelu, ActivationKind::gelu_tanh})
    for (int64_t rows : {1, 40}) {
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
        backend.create_io(4096, make_output_layout(1, 1, 1, 16));
        op.weight = backend.load_matrix(weight->spec);
        op.bias = backend.load_vector("bias", bias);
        put(backend, op.in, in);
      });
      run(TestStep{}, [&](Backend& backend) { backend.linear(op); });
      compare(op.out, static_cast<size_t>(rows * kOut), tolerance(*device_, 1e-5), "activated");
      reference_ = ReferenceBackend();
    }
}

// A mixture of experts from the router's logits to the residual stream; every table in between is compared too.
TEST_P(Conformance, Experts) {
  struct Shape {
    int64_t rows, experts, per_token, hidden, ffn;
    DType type;
    bool normalize;
  };
  for (const Shape& s : {Shape{1, 5, 2, 64, 32, DType::f32, true}, Shape{7, 5, 2, 64, 40, DType::bf16, false},
                         Shape{37, 9, 4, 96, 64, DType::q8_0, true}, Shape{33, 2, 1, 32, 32, DType::q4_0, true},
                         Shape{21, 130, 8, 32, 24, DType::f16, true}}) {
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
    ExpertGatedLinearOp inside{route, ActivationKind::silu, words(s.rows * s.hidden), {}, {}, words(pairs * s.ffn)};
    ExpertLinearOp outside{route, inside.out, {}, words(pairs * s.hidden)};
    ExpertSumOp sum{route, s.hidden, outside.out, words(s.rows * s.hidden)};

    auto gate = make_matrix(random_, s.type, s.experts * s.ffn, s.hidden);
    auto up = make_matrix(random_, s.type, s.experts * s.ffn, s.hidden);
    // ffn columns that no block fits are f16, as in files.
    const DType down_type = s.ffn % dtype_info(s.type).block_size == 0 ? s.type : DType::f16;
    auto down = make_matrix(random_, down_type, s.experts * s.hidden, s.ffn);
    for (StoredMatrix* m : {gate.get(), up.get(), down.get()}) m->spec.groups = s.experts;
    const std::vector<float> logits = random_floats(random_, static_cast<size_t>(s.rows * s.experts), 2.0f);
    const std::vector<float> in = random_floats(random_, static_cast<size_t>(s.rows * s.hidden), 0.05f);
    const std::vector<float> residual = random_floats(random_, static_cast<size_t>(s.rows * s.hidden));
    both([&](Backend& backend) {
      backend.create_scratch(plan.bytes());
      backend.create_io(4096, make_output_layout(1, 1, 1, 16));
      inside.gate = backend.load_matrix(gate->spec);
      inside.up = backend.load_matrix(up->spec);
      outside.weight = backend.load_matrix(down->spec);
      put(backend, routing.logits, logits, true);
      put(backend, inside.in, in);
      put(backend, sum.out, residual, true);
    });
    run(TestStep{}, [&](Backend& backend) {
      backend.route(routing);
      backend.expert_gated_linear(inside);
      backend.expert_linear(outside);
      backend.expert_sum(sum);
    });
    const std::string what = fmt::format("{} of {} experts, {}", s.per_token, s.experts, dtype_name(s.type));
    for (const Region& table : {route.ids, route.order, route.places}) {
      std::vector<int32_t> got(static_cast<size_t>(pairs)), want(got.size());
      device_->read_scratch({table.offset, got.size() * 4}, std::as_writable_bytes(std::span(got)));
      reference_.read_scratch({table.offset, want.size() * 4}, std::as_writable_bytes(std::span(want)));
      EXPECT_EQ(got, want) << what;
    }
    compare(route.weights, static_cast<size_t>(pairs), 2e-6, what + " weights", true);
    const double limit = is_block_quantized(s.type) ? 3e-2 : tolerance(*device_, s.type == DType::bf16 ? 1e-2 : 2e-5);
    compare(inside.out, static_cast<size_t>(pairs * s.ffn), limit, what + " inside");
    compare(outside.out, static_cast<size_t>(pairs * s.hidden), 4 * limit, what + " outside", true);
    compare(sum.out, static_cast<size_t>(s.rows * s.hidden), 4 * limit, what + " sum", true);
    reference_ = ReferenceBackend();
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
    backend.create_io(1 << 16, make_output_layout(4, 1, 1, 16));
    put(backend, op.in, in, true);
  });
  run(step, [&](Backend& backend) { backend.gather_rows(op); });
  compare(op.out, 4 * kDim, 0.0, "gathered", true);
}

TEST_P(Conformance, BlockZeroAndCopy) {
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
      backend.create_io(4096, make_output_layout(1, 1, 1, 16));
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
    run(step, [](Backend&) {});
    for (int64_t layer = 0; layer < kv.layers; ++layer)
      for (bool value : {false, true}) {
        std::vector<std::byte> want(raw.size());
        device_->read_cache(layer, value, raw);
        reference_.read_cache(layer, value, want);
        EXPECT_EQ(raw, want) << kv_type_name(type) << " layer " << layer;
      }
  }
}

struct AttentionSetup {
  int64_t head_size, block_size, group, kv_heads, window, rope_dims;
  KvType dtype;
  bool qk_norm;
  float spread = 1.0f;
};

class AttentionConformance : public Conformance {
 protected:
  struct Results {
    std::vector<std::vector<float>> outputs;  // of each step
    std::vector<float> cache[2];              // K and V
  };

  static double rounding(KvType type, double f32, double f16, double bf16, double int8) {
    return type == KvType::f32 ? f32 : type == KvType::f16 ? f16 : type == KvType::bf16 ? bf16 : int8;
  }

  static AttentionCase config_of(const AttentionSetup& setup, bool exact) {
    AttentionCase config;
    config.shape.heads = setup.group * setup.kv_heads;
    config.shape.kv_heads = setup.kv_heads;
    config.shape.head_size = setup.head_size;
    config.shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(setup.head_size)));
    config.shape.window = setup.window;
    config.shape.rope_dims = exact ? 0 : setup.rope_dims;
    config.kv_dtype = setup.dtype;
    config.block_size = setup.block_size;
    config.num_blocks = 1024 / setup.block_size;
    config.qk_norm = setup.qk_norm && !exact;
    config.spread = setup.spread;
    config.seed = static_cast<unsigned>(setup.head_size * 131 + setup.block_size * 7 + setup.group);
    return config;
  }

  // A prefill, then a mixed step of decode rows and prefill chunks, then decode alone.
  static Results run_steps(Backend& backend, const AttentionCase& config, bool exact) {
    const auto sequences = make_sequences(config, {300, 70, 9, 131, 1}, exact);
    const std::vector<std::vector<AttentionRig::Piece>> steps = {
        {{0, 0, 297, false}, {1, 0, 33, false}, {2, 0, 8, false}},
        {{0, 297, 1, true}, {2, 8, 1, true}, {1, 33, 30, false}, {3, 0, 128, false}, {4, 0, 1, false}},
        {{0, 298, 1, true}, {3, 128, 1, true}, {1, 63, 7, false}},
        {{0, 299, 1, true}, {3, 129, 1, true}},
        {{3, 130, 1, true}},
    };
    AttentionRig rig(backend, config);
    Results results;
    for (const auto& step : steps) results.outputs.push_back(rig.step(sequences, step));
    for (bool value : {false, true}) results.cache[value] = rig.cache(value);
    return results;
  }

  // The steps compared with the reference row by row.
  void check(const AttentionSetup& setup, bool exact) {
    const AttentionCase config = config_of(setup, exact);
    const std::string what = "head " + std::to_string(setup.head_size) + " block " + std::to_string(setup.block_size) +
                             " group " + std::to_string(setup.group) + " window " + std::to_string(setup.window) + " " +
                             std::string(kv_type_name(setup.dtype)) + (exact ? " exact" : "");
    // When rotation makes K inexact, a device may round the odd element to the other neighbour of the
    // cache's type, for int8 a 127th of the largest in its row.
    double limit = 1e-5;
    if (!exact) limit = rounding(setup.dtype, 2e-5, 1e-3, 8e-3, 4e-2);
    // A key that was rounded to 16 bits before the cache rounds it again may land on the other neighbour.
    const bool rounds_twice = device_->info().activation != DType::f32 && setup.dtype == KvType::bf16;
    if (!exact && rounds_twice) limit *= 2;
    limit = tolerance(*device_, limit) * setup.spread;
    if (setup.spread > 1) limit *= setup.spread * setup.spread;  // scores grow with the square
    if (setup.spread < 1) limit /= 2;                            // all keys count alike: results are small
    // The reference is slow and the same for every device.
    static std::map<std::string, Results> references;
    const std::string key =
        what + fmt::format(" {} {} {} {}", setup.kv_heads, setup.rope_dims, setup.qk_norm, setup.spread);
    if (!references.contains(key)) references[key] = run_steps(reference_, config, exact);
    const Results& want = references[key];
    const Results got = run_steps(*device_, config, exact);
    for (size_t i = 0; i < got.outputs.size(); ++i)
      expect_near(got.outputs[i], want.outputs[i], limit, what + " step " + std::to_string(i));
    const double cache_limit = rounding(setup.dtype, 2e-6, 1.1e-3, 8e-3, 8e-2);
    for (bool value : {false, true})
      // Of the numbers that bf16 knows, f16 rounds the very small.
      expect_near(got.cache[value], want.cache[value],
                  !exact                                     ? tolerance(*device_, cache_limit)
                  : device_->info().activation == DType::f16 ? 6e-8
                                                             : 0.0,
                  what + (value ? " V" : " K"));
    SetUp();
    reference_ = ReferenceBackend();
  }
};

TEST_P(AttentionConformance, HeadSizes) {
  for (int64_t head_size : {32, 64, 80, 96, 128, 256, 8, 40}) {
    check({head_size, 16, 3, 2, 0, head_size, KvType::f16, false}, false);
    check({head_size, 16, 3, 2, 0, head_size, KvType::f16, false}, true);
  }
}

TEST_P(AttentionConformance, BlockSizes) {
  for (int64_t block_size : {8, 16, 32, 64}) {
    for (int64_t head_size : {64, 80}) check({head_size, block_size, 2, 1, 0, head_size, KvType::bf16, false}, true);
    check({64, block_size, 4, 1, 0, 64, KvType::f16, false}, true);
  }
}

TEST_P(AttentionConformance, Groups) {
  for (int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 20}) check({64, 16, group, 2, 0, 64, KvType::f16, false}, true);
}

TEST_P(AttentionConformance, CacheTypes) {
  for (KvType dtype : {KvType::f32, KvType::f16, KvType::bf16, KvType::int8})
    for (int64_t head_size : {32, 72, 128}) {
      check({head_size, 16, 3, 1, 0, head_size, dtype, false}, true);
      check({head_size, 8, 1, 2, 0, head_size, dtype, false}, false);
    }
}

TEST_P(AttentionConformance, Int8) {
  for (int64_t head_size : {8, 40, 64, 80, 256}) check({head_size, 16, 3, 2, 0, head_size, KvType::int8, false}, true);
  for (int64_t block_size : {8, 32, 64}) check({64, block_size, 4, 1, 0, 64, KvType::int8, false}, true);
  for (int64_t window : {1, 15, 100, 257}) check({64, 16, 9, 1, window, 64, KvType::int8, false}, true);
  check({128, 16, 4, 2, 0, 64, KvType::int8, true}, false);
  // Rows of any size: the scales must not leave what the products are made of.
  for (float spread : {0x1p-10f, 30.0f}) check({64, 16, 3, 1, 0, 64, KvType::int8, false, spread}, true);
}

// What the rounding costs: rows of random numbers, attended to with and without it.
TEST_P(AttentionConformance, Int8RoundingIsSmall) {
  for (int64_t head_size : {64, 128}) {
    const AttentionSetup setup{head_size, 16, 3, 2, 0, head_size, KvType::int8, false};
    AttentionCase exact = config_of(setup, false);
    exact.kv_dtype = KvType::f32;
    const Results want = run_steps(reference_, exact, false);
    const Results got = run_steps(*device_, config_of(setup, false), false);
    double squares = 0, all = 0;
    for (size_t i = 0; i < want.outputs.size(); ++i) {
      expect_near(got.outputs[i], want.outputs[i], 0.04, "int8 against f32");
      for (size_t j = 0; j < want.outputs[i].size(); ++j) {
        squares += std::pow(got.outputs[i][j] - want.outputs[i][j], 2);
        all += std::pow(want.outputs[i][j], 2);
      }
    }
    EXPECT_LT(std::sqrt(squares / all), 0.012);
    EXPECT_GT(std::sqrt(squares / all), 0.002) << "nothing was rounded";
    SetUp();
    reference_ = ReferenceBackend();
  }
}

TEST_P(AttentionConformance, Windows) {
  for (int64_t window : {1, 2, 15, 64, 100, 257, 5000})
    for (int64_t block_size : {8, 32}) check({64, block_size, 3, 1, window, 64, KvType::f16, false}, true);
}

TEST_P(AttentionConformance, NormAndPartialRotation) {
  check({64, 16, 3, 1, 0, 32, KvType::f32, false}, false);
  check({64, 16, 3, 1, 0, 64, KvType::f32, true}, false);
  check({80, 16, 1, 2, 50, 40, KvType::f32, true}, false);
  check({128, 32, 4, 2, 0, 128, KvType::f32, true}, false);
}

// Scores in the hundreds: the largest must be taken out before exponentials, inside tiles and when splits are merged.
TEST_P(AttentionConformance, LargeScores) { check({64, 16, 3, 1, 0, 64, KvType::f32, false, 8.0f}, true); }

INSTANTIATE_TEST_SUITE_P(Devices, Conformance, testing::ValuesIn(devices()),
                         [](const auto& info) { return device_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Devices, AttentionConformance, testing::ValuesIn(attention_devices()),
                         [](const auto& info) { return device_name(info.param); });

}  // namespace
}  // namespace ingot::test
