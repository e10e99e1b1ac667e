#include "formats/block_quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "formats/test_files.h"

namespace ingot {
namespace {

std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(INGOT_FIXTURES) / "quant" / name;
}

std::vector<float> read_floats(const std::string& name) {
  const std::vector<std::byte> bytes = read_file(fixture(name));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class Dequantize : public testing::TestWithParam<DType> {};

TEST_P(Dequantize, EqualsTheGoldenToTheBit) {
  const std::string name(dtype_name(GetParam()));
  const std::vector<std::byte> blocks = read_file(fixture("dequant_" + name + ".bin"));
  const std::vector<float> expected = read_floats("dequant_" + name + ".f32");
  ASSERT_EQ(dtype_bytes(GetParam(), expected.size()), blocks.size());
  std::vector<float> values(expected.size());
  dequantize(GetParam(), blocks.data(), values.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], expected[i]) << name << " element " << i;
}

// The file's blocks are packed: a block in the middle starts at any byte.
TEST_P(Dequantize, NeedsNoAlignment) {
  const std::string name(dtype_name(GetParam()));
  const std::vector<std::byte> blocks = read_file(fixture("dequant_" + name + ".bin"));
  const size_t elements = static_cast<size_t>(dtype_info(GetParam()).block_size);
  std::vector<std::byte> shifted(blocks.size() + 1);
  std::copy(blocks.begin(), blocks.end(), shifted.begin() + 1);
  std::vector<float> a(elements), b(elements);
  dequantize(GetParam(), blocks.data(), elements, a.data());
  dequantize(GetParam(), shifted.data() + 1, elements, b.data());
  EXPECT_EQ(a, b);
}

INSTANTIATE_TEST_SUITE_P(Formats, Dequantize,
                         testing::Values(DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q2_k,
                                         DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

class Quantize : public testing::TestWithParam<DType> {};

TEST_P(Quantize, EqualsTheGoldenByteForByte) {
  const std::vector<float> values = read_floats("quant_input.f32");
  const std::vector<std::byte> expected = read_file(fixture("quant_" + std::string(dtype_name(GetParam())) + ".bin"));
  std::vector<std::byte> blocks(dtype_bytes(GetParam(), values.size()));
  ASSERT_EQ(blocks.size(), expected.size());
  quantize(GetParam(), values.data(), values.size(), blocks.data());
  for (size_t i = 0; i < blocks.size(); ++i) ASSERT_EQ(blocks[i], expected[i]) << "byte " << i;
}

TEST_P(Quantize, RoundTripStaysWithinOneStep) {
  const std::vector<float> values = read_floats("quant_input.f32");
  std::vector<std::byte> blocks(dtype_bytes(GetParam(), values.size()));
  quantize(GetParam(), values.data(), values.size(), blocks.data());
  std::vector<float> back(values.size());
  dequantize(GetParam(), blocks.data(), back.size(), back.data());
  for (size_t i = 0; i < values.size(); i += 32) {
    float largest = 0;
    for (size_t j = i; j < i + 32; ++j) largest = std::max(largest, std::fabs(values[j]));
    // 4 bits over [-a, a]; the largest value may itself be clipped by one step. Scales under 2^-25 become 0 in f16.
    for (size_t j = i; j < i + 32; ++j) EXPECT_NEAR(back[j], values[j], largest / 7 + 4e-6f) << "element " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Quantize,
                         testing::Values(DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::bf16),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(QuantizePlain, FloatsRoundTrip) {
  const std::vector<float> values = {0.0f, -1.5f, 0.25f, 65504.0f};
  for (DType type : {DType::f32, DType::f16, DType::bf16}) {
    std::vector<std::byte> bytes(dtype_bytes(type, values.size()));
    quantize(type, values.data(), values.size(), bytes.data());
    std::vector<float> back(values.size());
    dequantize(type, bytes.data(), back.size(), back.data());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], std::fabs(values[i]) / 256);
  }
}

TEST(QuantizePlain, NothingToDoNeedsNoMemory) {
  dequantize(DType::f32, nullptr, 0, nullptr);
  quantize(DType::f32, nullptr, 0, nullptr);
}

TEST(QuantizePlain, BrokenWeightsDoNotCrash) {
  std::vector<float> values(32, 1.0f);
  values[3] = std::numeric_limits<float>::quiet_NaN();
  values[4] = std::numeric_limits<float>::infinity();
  for (DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::iq4_nl}) {
    std::vector<std::byte> bytes(dtype_bytes(type, values.size()));
    quantize(type, values.data(), values.size(), bytes.data());
  }
}

// Values that the format has, either way up, come back as they were; zeros stay zeros.
TEST(QuantizeNonLinear, NumbersOfTheFormatAreKept) {
  const int numbers[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  for (const float scale : {0.03125f, -2.0f, 0.0f}) {
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(numbers[i * 7 % 16]);
    std::vector<std::byte> blocks(dtype_bytes(DType::iq4_nl, values.size()));
    quantize(DType::iq4_nl, values.data(), values.size(), blocks.data());
    std::vector<float> back(values.size());
    dequantize(DType::iq4_nl, blocks.data(), back.size(), back.data());
    EXPECT_EQ(back, values) << scale;
  }
}

// No other codes are nearer than those that were chosen, for the scale that was.
TEST(QuantizeNonLinear, CodesAreTheNearest) {
  const std::vector<float> values = read_floats("quant_input.f32");
  std::vector<std::byte> blocks(dtype_bytes(DType::iq4_nl, values.size()));
  quantize(DType::iq4_nl, values.data(), values.size(), blocks.data());
  std::vector<float> back(values.size());
  dequantize(DType::iq4_nl, blocks.data(), back.size(), back.data());
  for (int code = 0; code < 16; ++code) {
    std::vector<std::byte> others = blocks;
    for (size_t i = 0; i < others.size(); ++i)
      if (i % 18 >= 2) others[i] = static_cast<std::byte>(code * 17);
    std::vector<float> there(values.size());
    dequantize(DType::iq4_nl, others.data(), there.size(), there.data());
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_LE(std::fabs(back[i] - values[i]), std::fabs(there[i] - values[i]) * 1.0001f + 1e-12f) << "element " << i;
  }
}

TEST(QuantizePlain, OtherKFormatsAreDeclined) {
  const std::vector<float> values(256);
  std::vector<std::byte> bytes(1024);
  expect_error(ErrorKind::declined, "q5_k", [&] { quantize(DType::q5_k, values.data(), 256, bytes.data()); });
}

}  // namespace
}  // namespace ingot
