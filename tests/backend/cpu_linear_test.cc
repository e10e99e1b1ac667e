#include "backend/cpu/linear/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/linear/format.h"
#include "core/error.h"
#include "core/threads.h"
#include "quant_blocks.h"
#include "soak.h"

namespace ingot::cpu {
namespace {

using test::random_tensor;
using test::value_at;

struct Matrix {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<TensorView> tensors;
  MatrixSpec spec;

  // The value of row `row`, column `k`, whatever part it comes from. The bytes must not change after the first call.
  double at(int64_t row, int64_t k) {
    if (values.empty())
      for (int64_t i = 0; i < spec.rows * spec.cols; ++i) values.push_back(compute(i / spec.cols, i % spec.cols));
    return values[row * spec.cols + k];
  }

  std::vector<double> values;
  double compute(int64_t row, int64_t k) const {
    for (const MatrixPart& part : spec.parts) {
      const int64_t rows = part.tensor->shape[0];
      if (row < rows) {
        const size_t row_bytes = dtype_bytes(part.tensor->dtype, spec.cols);
        return value_at(part.tensor->dtype,
                        reinterpret_cast<const uint8_t*>(part.tensor->data.data()) + part.source_row(row) * row_bytes,
                        k);
      }
      row -= rows;
    }
    return NAN;
  }
};

struct Part {
  DType type;
  int64_t rows;
  int64_t head = 0;
};

std::unique_ptr<Matrix> make_matrix(const std::vector<Part>& parts, int64_t cols, uint32_t seed) {
  auto m = std::make_unique<Matrix>();
  std::mt19937 rng(seed);
  m->spec.name = "test";
  m->spec.cols = cols;
  for (const Part& part : parts) m->bytes.push_back(random_tensor(part.type, part.rows, cols, rng));
  m->tensors.resize(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    TensorView& t = m->tensors[i];
    t.name = "part" + std::to_string(i);
    t.dtype = parts[i].type;
    t.shape = {parts[i].rows, cols};
    t.data = std::as_bytes(std::span(m->bytes[i]));
    m->spec.parts.push_back({&t, parts[i].head});
    m->spec.rows += parts[i].rows;
  }
  return m;
}

std::vector<float> random_floats(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(rng) * (rng() % 50 == 0 ? 8.0f : 1.0f);  // with outliers, as activations have
  return v;
}

// Rounds 32 values to codes in [-127, 127] with one scale, adds them to `out`, and leaves the rest in x.
float quantize_block(float* x, double* out) {
  float largest = 0;
  for (int k = 0; k < 32; ++k) largest = std::max(largest, std::fabs(x[k]));
  const float d = largest * (1.0f / 127.0f), inverse = largest > 1e-30f ? 127.0f / largest : 0;
  for (int k = 0; k < 32; ++k) {
    const float code = std::nearbyint(x[k] * inverse);
    out[k] += double(d) * code;
    x[k] -= d * code;
  }
  return largest;
}

// What the integer kernels make of a row: blocks with an outlier are rounded twice.
std::vector<double> quantized(const float* x, int64_t cols) {
  std::vector<float> rest(x, x + cols);
  std::vector<double> out(cols, 0.0);
  double squares = 0;
  for (int64_t k = 0; k < cols; ++k) squares += double(x[k]) * x[k];
  const double limit = kOutlier * std::sqrt(squares / cols);
  for (int64_t b = 0; b < cols; b += 32)
    if (quantize_block(&rest[b], &out[b]) > limit) quantize_block(&rest[b], &out[b]);
  return out;
}

std::vector<float> run_linear(const PackedMatrix& w, const std::vector<float>& in, int64_t rows, int threads,
                              const float* bias = nullptr) {
  ThreadPool pool(threads);
  std::vector<float> out(rows * w.rows(), NAN);
  void* scratch = std::aligned_alloc(64, (linear_scratch_bytes(rows, w.cols(), threads) + 63) / 64 * 64);
  LinearArgs args;
  args.weight = &w;
  args.in = in.data();
  args.rows = rows;
  args.in_stride = w.cols();
  args.bias = bias;
  args.out = out.data();
  args.out_stride = w.rows();
  args.scratch = scratch;
  pool.run([&](Worker& worker) { linear(args, worker); });
  std::free(scratch);
  return out;
}

// A row as the kernels of that format see it.
std::vector<double> as_seen(Isa isa, DType type, const float* x, int64_t cols) {
  if (is_block_quantized(type)) return quantized(x, cols);
  std::vector<double> out(x, x + cols);
  if (isa == Isa::avx512_bf16 && type == DType::bf16)
    for (double& v : out) v = bf16_to_f32(f32_to_bf16(static_cast<float>(v)));
  return out;
}

class LinearTest : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  DType type() const { return std::get<1>(GetParam()); }
  int64_t cols(int64_t blocks) const {  // a multiple of the format's block, odd where it may be
    return is_block_quantized(type()) ? blocks * dtype_info(type()).block_size : blocks * 37;
  }
};

TEST_P(LinearTest, UnpackedRowsAreTheSource) {
  for (int64_t rows : {1, 15, 16, 17, 50}) {
    auto m = make_matrix({{type(), rows}}, cols(3), 1);
    const PackedMatrix w = pack_matrix(m->spec, isa());
    std::vector<float> row(w.cols());
    for (int64_t r = 0; r < rows; ++r) {
      unpack_row(w, r, row.data());
      for (int64_t k = 0; k < w.cols(); ++k) ASSERT_NEAR(row[k], m->at(r, k), 1e-6 * std::fabs(m->at(r, k)) + 1e-7);
    }
  }
}

TEST_P(LinearTest, MatchesDoubleReference) {
  struct Shape {
    int64_t blocks, n;
  };
  const int64_t long_row = cols(1) > 32 ? 3 : 18;  // above 16 blocks of 32, which some kernels quantize together
  std::vector<Shape> shapes = {{1, 96}, {2, 1}, {3, 37}, {long_row, 16}};
  if (test::soak())
    for (int64_t blocks : {1, 2, 3, 5})
      for (int64_t n : {1, 16, 37, 96}) shapes.push_back({blocks, n});
  for (const auto& [blocks, n] : shapes) {
    const int64_t k_size = cols(blocks), most = 33;
    auto m = make_matrix({{type(), n}}, k_size, static_cast<uint32_t>(blocks * 100 + n));
    const PackedMatrix w = pack_matrix(m->spec, isa());
    const std::vector<float> in = random_floats(most * k_size, 7);
    const std::vector<float> bias = random_floats(n, 8);
    // The sums, as the kernels see x and as it is; and what may be off of each.
    std::vector<double> tight(most * n), exact(most * n), size(most * n), norm(n);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t k = 0; k < k_size; ++k) norm[i] += m->at(i, k) * m->at(i, k);
    for (int64_t r = 0; r < most; ++r) {
      const std::vector<double> seen = as_seen(isa(), type(), &in[r * k_size], k_size);
      for (int64_t i = 0; i < n; ++i) {
        double sum = bias[i], seen_sum = bias[i], sizes = std::fabs(bias[i]);
        const double* row = &m->values[i * k_size];
        for (int64_t k = 0; k < k_size; ++k) {
          const double x = in[r * k_size + k];
          sum += row[k] * x;
          seen_sum += row[k] * seen[k];
          sizes += std::fabs(row[k] * x);
        }
        tight[r * n + i] = seen_sum, exact[r * n + i] = sum, size[r * n + i] = sizes;
      }
    }
    for (int64_t rows : {1, 2, 3, 4, 5, 7, 8, 11, 16, 33}) {
      const std::vector<float> x(in.begin(), in.begin() + rows * k_size);
      const std::vector<float> out = run_linear(w, x, rows, 1 + rows % 2, bias.data());
      for (int64_t i = 0; i < rows * n; ++i) {
        ASSERT_NEAR(out[i], tight[i], 1e-5 * size[i]) << "rows " << rows << " n " << n << " k " << k_size;
        // A code is off by at most half a step of (largest of a block) / 127, and no largest here is near 25.
        const double noise = is_block_quantized(type()) ? 25.0 / 127 : 25.0 / 512;
        ASSERT_NEAR(out[i], exact[i], 1e-5 * size[i] + std::sqrt(norm[i % n]) * noise);
      }
    }
  }
}

TEST_P(LinearTest, RowsDoNotDependOnTheirBatch) {
  const int64_t n = 67, k_size = cols(3);  // five panels: two pairs, and one that is left over
  auto m = make_matrix({{type(), n}}, k_size, 3);
  const PackedMatrix w = pack_matrix(m->spec, isa());
  const int64_t most = 72;  // more than 8 tiles: panels are taken apart for them
  const std::vector<float> in = random_floats(most * k_size, 4);
  std::vector<float> alone;
  for (int64_t r = 0; r < most; ++r) {
    const std::vector<float> one = run_linear(w, {in.begin() + r * k_size, in.begin() + (r + 1) * k_size}, 1, 1);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  for (int64_t rows = 1; rows <= most; ++rows) {
    const bool ends_tiles = rows % 8 < 2 || rows % 8 == 7;
    if (rows > 9 && (!ends_tiles || rows > 40) && rows < most && !test::soak()) continue;
    const int64_t first = (rows * 7) % (most - rows + 1);
    const std::vector<float> x(in.begin() + first * k_size, in.begin() + (first + rows) * k_size);
    const std::vector<float> out = run_linear(w, x, rows, static_cast<int>(1 + rows % 4));
    for (int64_t i = 0; i < rows * n; ++i) ASSERT_EQ(out[i], alone[first * n + i]) << "rows " << rows << " at " << i;
  }
}

// A slice of the columns has the bits that it has as a matrix of its own, and so they can be on other machines.
TEST_P(LinearTest, SlicesAreSummedByThemselves) {
  const int64_t n = 19, k_size = cols(8), unit = is_block_quantized(type()) ? k_size / 8 : 2;
  auto m = make_matrix({{type(), n}}, k_size, 15);
  const std::vector<std::vector<int64_t>> cuts = {
      {2 * unit, 3 * unit, 3 * unit, k_size}, {k_size}, {5 * unit, k_size}};  // one of the first is empty
  for (const std::vector<int64_t>& ends : cuts) {
    m->spec.slices = ends;
    const PackedMatrix whole = pack_matrix(m->spec, isa());
    for (int64_t rows : {1, 2, 5, 8, 17, 64}) {
      const std::vector<float> in = random_floats(rows * k_size, 16);
      std::vector<std::vector<float>> sums;
      int64_t column = 0;
      for (const int64_t end : ends) {
        MatrixSpec part = m->spec;
        part.parts[0].first_col = column;
        part.cols = end - column;
        part.slices.clear();
        std::vector<float> x;
        for (int64_t r = 0; r < rows; ++r) x.insert(x.end(), &in[r * k_size + column], &in[r * k_size] + end);
        sums.push_back(part.cols == 0 ? std::vector<float>(rows * n, 0.0f)
                                      : run_linear(pack_matrix(part, isa()), x, rows, 1));
        column = end;
      }
      for (size_t step = 1; step < sums.size(); step *= 2)
        for (size_t s = 0; s < sums.size(); s += 2 * step)
          for (int64_t i = 0; i < rows * n; ++i) sums[s][i] += sums[s + step][i];
      ASSERT_EQ(run_linear(whole, in, rows, 2), sums[0]) << ends.size() << " slices, " << rows << " rows";
    }
  }
}

TEST_P(LinearTest, LargestCodesDoNotOverflow) {
  const int64_t n = 16, k_size = cols(8);
  auto m = make_matrix({{type(), n}}, k_size, 5);
  for (int pattern : {0x00, 0xff, 0x80, 0x7f}) {
    if (is_block_quantized(type())) {
      const DTypeInfo& info = dtype_info(type());
      std::fill(m->bytes[0].begin(), m->bytes[0].end(), static_cast<uint8_t>(pattern));
      for (size_t b = 0; b < m->bytes[0].size(); b += info.block_bytes)
        for (int offset : test::half_offsets(type())) {
          const uint16_t one = f32_to_f16(1.0f);
          std::memcpy(&m->bytes[0][b + offset], &one, 2);
        }
    }
    m->values.clear();
    const PackedMatrix w = pack_matrix(m->spec, isa());
    for (float sign : {1.0f, -1.0f}) {
      for (int64_t rows : {1, 9, 64}) {
        const std::vector<float> in(rows * k_size, sign * 127.0f);
        const std::vector<float> out = run_linear(w, in, rows, 1);
        for (int64_t i = 0; i < rows * n; ++i) {
          double exact = 0, size = 0;
          for (int64_t k = 0; k < k_size; ++k) {
            exact += m->at(i % n, k) * in[k];
            size += std::fabs(m->at(i % n, k) * in[k]);
          }
          ASSERT_NEAR(out[i], exact, 1e-5 * size) << "pattern " << pattern;
        }
      }
    }
  }
}

TEST_P(LinearTest, ZeroRowsGiveTheBias) {
  auto m = make_matrix({{type(), 20}}, cols(2), 6);
  const PackedMatrix w = pack_matrix(m->spec, isa());
  const std::vector<float> in(3 * w.cols(), 0.0f), bias = random_floats(20, 1);
  const std::vector<float> out = run_linear(w, in, 3, 2, bias.data());
  for (int i = 0; i < 60; ++i) EXPECT_EQ(out[i], bias[i % 20]);
}

TEST_P(LinearTest, AccumulatesIntoStridedOutput) {
  const int64_t n = 35, rows = 6;
  auto m = make_matrix({{type(), n}}, cols(2), 9);
  const PackedMatrix w = pack_matrix(m->spec, isa());
  const int64_t k_size = w.cols(), in_stride = k_size + 5, out_stride = n + 3;
  const std::vector<float> in = random_floats(rows * in_stride, 2);
  std::vector<float> dense;
  for (int64_t r = 0; r < rows; ++r) dense.insert(dense.end(), &in[r * in_stride], &in[r * in_stride] + k_size);
  const std::vector<float> plain = run_linear(w, dense, rows, 1);
  const std::vector<float> before = random_floats(rows * out_stride, 3);
  std::vector<float> out = before;
  std::vector<std::byte> memory(linear_scratch_bytes(rows, k_size, 3) + 64);
  LinearArgs args;
  args.weight = &w;
  args.in = in.data();
  args.rows = rows;
  args.in_stride = in_stride;
  args.out = out.data();
  args.out_stride = out_stride;
  args.accumulate = true;
  args.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  ThreadPool pool(3);
  pool.run([&](Worker& worker) { linear(args, worker); });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < out_stride; ++i)
      ASSERT_EQ(out[r * out_stride + i], before[r * out_stride + i] + (i < n ? plain[r * n + i] : 0.0f));
}

double reference_activation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu: return x / (1 + std::exp(-x));
    case ActivationKind::gelu_tanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
  return 0;
}

TEST_P(LinearTest, GatedIsActivationTimesUp) {
  const int64_t n = 45, rows = 64;
  auto gate = make_matrix({{type(), n}}, cols(1), 10), up = make_matrix({{type(), n}}, cols(1), 11);
  const PackedMatrix g = pack_matrix(gate->spec, isa()), u = pack_matrix(up->spec, isa());
  const std::vector<float> gate_bias = random_floats(n, 12), up_bias = random_floats(n, 13);
  const std::vector<float> in = random_floats(rows * g.cols(), 14);
  const std::vector<float> g_out = run_linear(g, in, rows, 1, gate_bias.data());
  const std::vector<float> u_out = run_linear(u, in, rows, 1, up_bias.data());
  for (ActivationKind kind : {ActivationKind::silu, ActivationKind::gelu_tanh, ActivationKind::gelu}) {
    std::vector<float> first;
    for (int threads : {1, 3}) {
      std::vector<float> out(rows * n, NAN);
      std::vector<std::byte> memory(linear_scratch_bytes(rows, g.cols(), threads) + 64);
      LinearArgs args;
      args.weight = &g;
      args.up = &u;
      args.in = in.data();
      args.rows = rows;
      args.in_stride = g.cols();
      args.bias = gate_bias.data();
      args.up_bias = up_bias.data();
      args.activation = kind;
      args.out = out.data();
      args.out_stride = n;
      args.scratch = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
      ThreadPool pool(threads);
      pool.run([&](Worker& worker) { linear(args, worker); });
      for (int64_t i = 0; i < rows * n; ++i) {
        const double want = reference_activation(kind, g_out[i]) * u_out[i];
        ASSERT_NEAR(out[i], want, 4e-6 * std::fabs(want) + 2e-6 * std::fabs(u_out[i])) << "gate " << g_out[i];
      }
      if (threads == 1)
        first = out;
      else
        EXPECT_EQ(out, first);
    }
  }
}

TEST_P(LinearTest, TakesAboutTheMemoryOfTheFile) {
  auto m = make_matrix({{type(), 64}}, is_block_quantized(type()) ? 512 : 500, 1);
  const PackedMatrix w = pack_matrix(m->spec, isa());
  EXPECT_EQ(w.bytes(), packed_bytes(m->spec, isa()));
  EXPECT_LE(w.bytes(), m->bytes[0].size() * 1.05);
}

std::vector<DType> all_types() {
  std::vector<DType> list;
  for (int i = 0; i < kNumDTypes; ++i) list.push_back(static_cast<DType>(i));
  return list;
}
std::vector<Isa> isas() { return {available_isas().begin(), available_isas().end()}; }

INSTANTIATE_TEST_SUITE_P(All, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(isas()), ::testing::ValuesIn(all_types())),
                         [](const auto& info) {
                           return std::string(isa_name(std::get<0>(info.param))) + "_" +
                                  std::string(dtype_name(std::get<1>(info.param)));
                         });

// Rows so wide that panels meet them a slice at a time, where there are tiles enough; of formats of every kind of scales.
TEST(LinearWide, SlicesAtATimeHaveTheBitsOfFewRows) {
  constexpr int64_t kCols = 256 * 44, kRows = 75, kOutputs = 55;
  const std::vector<float> in = random_floats(kRows * kCols, 31), bias = random_floats(kOutputs, 32);
  for (const std::vector<int64_t>& slices : {std::vector<int64_t>{256 * 11, 256 * 22, 256 * 33, kCols},
                                             {256 * 20, 256 * 20, 256 * 43, kCols},
                                             {256 * 10, kCols}}) {
    for (const DType type : {DType::q4_0, DType::q8_0, DType::q4_k, DType::q6_k}) {
      auto m = make_matrix({{type, kOutputs}}, kCols, 33);
      m->spec.slices = slices;
      for (const Isa isa : available_isas()) {
        const PackedMatrix w = pack_matrix(m->spec, isa);
        std::vector<float> want;
        for (int64_t row = 0; row < kRows; row += 5) {
          const std::vector<float> few(in.begin() + row * kCols, in.begin() + (row + 5) * kCols);
          const std::vector<float> out = run_linear(w, few, 5, 1, bias.data());
          want.insert(want.end(), out.begin(), out.end());
        }
        for (const int threads : {1, 3})
          ASSERT_EQ(run_linear(w, in, kRows, threads, bias.data()), want)
              << dtype_name(type) << " " << isa_name(isa) << ", " << slices.size() << " slices, " << threads
              << " threads";
        if (!test::soak() && slices.size() == 2) break;
      }
    }
  }
}

// A slice whose panels find no room to be taken apart, behind one whose panels did.
TEST(LinearWide, SlicesOfAllSizesAreTheirOwn) {
  constexpr int64_t kCols = 256 * 64, kRows = 64, kOutputs = 32;
  const std::vector<float> in = random_floats(kRows * kCols, 41);
  auto m = make_matrix({{DType::q4_0, kOutputs}}, kCols, 42);
  m->spec.slices = {256, kCols};
  for (const Isa isa : available_isas()) {
    const PackedMatrix w = pack_matrix(m->spec, isa);
    std::vector<float> want;
    for (int64_t row = 0; row < kRows; row += 4) {
      const std::vector<float> few(in.begin() + row * kCols, in.begin() + (row + 4) * kCols);
      const std::vector<float> out = run_linear(w, few, 4, 1);
      want.insert(want.end(), out.begin(), out.end());
    }
    ASSERT_EQ(run_linear(w, in, kRows, 1), want) << isa_name(isa);
  }
}

// q over k over v with interleaved heads and differing formats, and a bias: what attention layers are made of.
TEST(LinearParts, StackInOrderWithTheirRowsPutBack) {
  for (Isa isa : available_isas()) {
    auto m = make_matrix({{DType::q4_k, 40, 8},
                          {DType::q4_k, 24, 8},
                          {DType::q6_k, 24},
                          {DType::f16, 5},
                          {DType::q5_0, 16},
                          {DType::bf16, 7}},
                         256, 21);
    const PackedMatrix w = pack_matrix(m->spec, isa);
    ASSERT_EQ(w.rows(), 116);
    std::vector<float> row(256);
    for (int64_t r = 0; r < w.rows(); ++r) {
      unpack_row(w, r, row.data());
      for (int64_t k = 0; k < 256; ++k) ASSERT_NEAR(row[k], m->at(r, k), 1e-6 * std::fabs(m->at(r, k)) + 1e-7);
    }
    const std::vector<float> in = random_floats(9 * 256, 22);
    const std::vector<float> out = run_linear(w, in, 9, 2);
    for (int64_t r = 0; r < 9; ++r) {
      for (int64_t i = 0; i < w.rows(); ++i) {
        const DType type = i < 64    ? DType::q4_k
                           : i < 88  ? DType::q6_k
                           : i < 93  ? DType::f16
                           : i < 109 ? DType::q5_0
                                     : DType::bf16;
        const std::vector<double> seen = as_seen(isa, type, &in[r * 256], 256);
        double want = 0, size = 0;
        for (int64_t k = 0; k < 256; ++k) {
          want += m->at(i, k) * seen[k];
          size += std::fabs(m->at(i, k) * in[r * 256 + k]);
        }
        ASSERT_NEAR(out[r * w.rows() + i], want, 1e-5 * size) << "row " << i;
      }
    }
  }
}

// Every source byte is given up, and not before it was read: dropped bytes are overwritten here.
TEST(LinearParts, SourceIsDroppedBehindThePacking) {
  const std::vector<Part> parts = {
      {DType::q4_0, 64, 32}, {DType::q4_0, 48, 16}, {DType::f32, 19}, {DType::q8_0, 4000, 8}};
  auto m = make_matrix(parts, 2048, 31);
  for (int threads : {0, 2}) {
    auto source = make_matrix(parts, 2048, 31);
    std::atomic<size_t> calls{0};
    std::unique_ptr<ThreadPool> pool = threads > 0 ? std::make_unique<ThreadPool>(threads) : nullptr;
    const PackedMatrix w = pack_matrix(
        source->spec, Isa::portable,
        [&](std::span<const std::byte> range) {
          ++calls;
          std::memset(const_cast<std::byte*>(range.data()), 0x5a, range.size());
        },
        pool.get());
    EXPECT_GT(calls, source->bytes.size());  // piece by piece
    for (const auto& bytes : source->bytes)
      EXPECT_TRUE(std::ranges::all_of(bytes, [](auto byte) { return static_cast<uint8_t>(byte) == 0x5a; }));
    std::vector<float> row(2048);
    for (int64_t r = 0; r < w.rows(); r += 3) {
      unpack_row(w, r, row.data());
      for (int64_t k = 0; k < 2048; k += 5)
        ASSERT_NEAR(row[k], m->compute(r, k), 1e-6 * std::fabs(m->compute(r, k)) + 1e-7);
    }
  }
}

TEST(LinearParts, PartsThatDoNotAddUpAreRefused) {
  auto expect_error = [](const MatrixSpec& spec, const std::string& text) {
    try {
      pack_matrix(spec, Isa::portable);
      ADD_FAILURE() << "no error for " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_file);
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  };
  auto m = make_matrix({{DType::q4_0, 16}}, 64, 1);
  m->spec.rows = 17;
  expect_error(m->spec, "expected 17");
  m = make_matrix({{DType::q4_0, 16}}, 64, 1);
  m->spec.cols = 32;
  expect_error(m->spec, "part0");
  m = make_matrix({{DType::q4_0, 16}}, 64, 1);
  m->tensors[0].data = m->tensors[0].data.first(10);
  expect_error(m->spec, "10 bytes");
  m = make_matrix({{DType::f32, 16, 6}}, 64, 1);
  expect_error(m->spec, "whole heads");
}

TEST(Isa, NamesParseAndWrongOnesSayWhatRuns) {
  for (int i = 0; i < kNumIsas; ++i) EXPECT_EQ(parse_isa(isa_name(static_cast<Isa>(i))), static_cast<Isa>(i));
  EXPECT_EQ(parse_isa("sse9"), std::nullopt);
  EXPECT_EQ(available_isas().front(), Isa::portable);
  EXPECT_EQ(choose_isa(""), best_isa());
  EXPECT_EQ(choose_isa("portable"), Isa::portable);
  for (std::string_view name : {"sse9", "amx", "neon", "avx2"}) {
    const std::optional<Isa> isa = parse_isa(name);
    if (isa && std::count(available_isas().begin(), available_isas().end(), *isa)) continue;
    try {
      choose_isa(name);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::bad_call);
      EXPECT_NE(std::string(e.what()).find("portable"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ingot::cpu
