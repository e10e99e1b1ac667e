#include "formats/quantize_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "formats/block_quant.h"
#include "formats/convert_rows.h"

namespace ingot {
namespace {

constexpr int64_t kRows = 64, kCols = 1024;

uint64_t word(uint64_t index) {  // SplitMix64
  uint64_t z = (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The values of scripts/measure_ggml_quant.py: a bell, one with heavy tails, one away from zero.
std::vector<float> make_values(const std::string& shape) {
  std::vector<float> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    int sum = -1020;
    for (uint64_t bytes = word(i), k = 0; k < 8; ++k, bytes >>= 8) sum += static_cast<int>(bytes & 255);
    const double x = sum;
    values[i] = shape == "bell"    ? static_cast<float>(x / 8192)
                : shape == "tails" ? static_cast<float>(x * x * x / 1073741824)
                                   : static_cast<float>((x + 300) / 8192);
  }
  return values;
}

std::vector<std::byte> convert(DType type, const std::vector<float>& values, int threads) {
  ThreadPool pool(threads);
  std::vector<std::byte> blocks(dtype_bytes(type, values.size()));
  convert_rows(DType::f32, reinterpret_cast<const std::byte*>(values.data()), type, blocks.data(), kRows, kCols, pool);
  return blocks;
}

double relative_error(DType type, const std::vector<float>& values) {
  const std::vector<std::byte> blocks = convert(type, values, 2);
  std::vector<float> back(values.size());
  dequantize(type, blocks.data(), back.size(), back.data());
  double error = 0, power = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += (static_cast<double>(back[i]) - values[i]) * (static_cast<double>(back[i]) - values[i]);
    power += static_cast<double>(values[i]) * values[i];
  }
  return std::sqrt(error / power);
}

TEST(QuantizeRows, ErrorIsNoWorseThanGgmls) {
  struct Figure {
    const char* shape;
    DType type;
    double ggml;  // root mean square error over that of the values, by scripts/measure_ggml_quant.py (ggml 0.25.3)
  };
  for (const Figure& figure : {Figure{"bell", DType::q4_0, 0.083671},
                               {"bell", DType::q8_0, 0.005232},
                               {"bell", DType::q4_k, 0.069872},
                               Figure{"tails", DType::q4_0, 0.110449},
                               {"tails", DType::q8_0, 0.008482},
                               {"tails", DType::q4_k, 0.090380},
                               Figure{"shifted", DType::q4_0, 0.071316},
                               {"shifted", DType::q8_0, 0.004477},
                               {"shifted", DType::q4_k, 0.039714},
                               // Not ggml's: of fifteen scales near the extreme value's, the best by squares weighted
                               // by squares, in double precision.
                               Figure{"bell", DType::iq4_nl, 0.075250},
                               {"tails", DType::iq4_nl, 0.091807},
                               {"shifted", DType::iq4_nl, 0.067768}}) {
    const double error = relative_error(figure.type, make_values(figure.shape));
    EXPECT_LT(error, figure.ggml * 1.05) << figure.shape << " " << dtype_name(figure.type);
    EXPECT_GT(error, figure.ggml * 0.5) << figure.shape << " " << dtype_name(figure.type) << ": too good to be true";
    RecordProperty(std::string(figure.shape) + "_" + std::string(dtype_name(figure.type)), std::to_string(error));
  }
}

TEST(QuantizeRows, NumberOfThreadsChangesNothing) {
  const std::vector<float> values = make_values("bell");
  EXPECT_EQ(convert(DType::q4_k, values, 1), convert(DType::q4_k, values, 3));
}

TEST(QuantizeK, GroupsOfOneValueAreKept) {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i < 64 ? 0.0f : i < 128 ? 0.5f : i < 192 ? -0.5f : 1.0f;
  uint8_t block[144];
  write_q4_k(values.data(), block);
  std::vector<float> back(values.size());
  dequantize(DType::q4_k, reinterpret_cast<const std::byte*>(block), back.size(), back.data());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 0.01f) << i;
}

TEST(QuantizeK, BrokenWeightsDoNotCrash) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f}) {
    std::vector<float> values(256, 1.0f);
    values[3] = bad;
    values[200] = -bad;
    uint8_t block[144];
    write_q4_k(values.data(), block);
  }
}

}  // namespace
}  // namespace ingot
