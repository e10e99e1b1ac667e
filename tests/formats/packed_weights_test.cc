#include "formats/packed_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/half.h"
#include "formats/block_quant.h"
#include "formats/computed_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/test_files.h"

namespace ingot {
namespace {

using Method = PackedFormat::Method;

// A safetensors file in memory.
class File {
 public:
  template <typename T>
  void add(const std::string& name, const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
  }
  std::shared_ptr<SafetensorsCheckpoint> open() const {
    const std::string text = header_.dump();
    const uint64_t length = text.size();
    const std::string bytes = std::string(reinterpret_cast<const char*>(&length), 8) + text + data_;
    return SafetensorsCheckpoint::open_bytes(as_bytes(bytes));
  }

 private:
  nlohmann::ordered_json header_ = nlohmann::ordered_json::object();
  std::string data_;
};

constexpr int64_t kOut = 8, kIn = 64;

// Levels, scales and zero points that differ everywhere.
uint32_t level(int64_t row, int64_t column) { return static_cast<uint32_t>(row * 7 + column * 5 + column / 9) % 16; }
float scale(int64_t row, int64_t group) {
  return 0.125f + 0.0625f * static_cast<float>(row) + 0.5f * static_cast<float>(group);
}
uint32_t zero(int64_t row, int64_t group) { return static_cast<uint32_t>(3 + row + 2 * group) % 16; }
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};  // the row that each place of a word is for

File pack(Method method, int64_t group_size, bool symmetric, bool minus_one) {
  File file;
  const int64_t groups = kIn / group_size;
  const auto zero_of = [&](int64_t row, int64_t g) { return symmetric ? 8u : zero(row, g); };
  std::vector<uint32_t> levels, zeros;
  std::vector<uint16_t> scales, biases;
  if (method == Method::awq)
    for (int64_t c = 0; c < kIn; ++c) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) word |= level(kAwqOrder[i], c) << (4 * i);
      levels.push_back(word);
    }
  else if (method == Method::gptq)
    for (int64_t c = 0; c < kIn; c += 8)
      for (int64_t r = 0; r < kOut; ++r) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i) word |= level(r, c + i) << (4 * i);
        levels.push_back(word);
      }
  else
    for (int64_t r = 0; r < kOut; ++r)
      for (int64_t c = 0; c < kIn; c += 8) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i) word |= level(r, c + i) << (4 * i);
        levels.push_back(word);
      }
  if (method == Method::mlx) {
    for (int64_t r = 0; r < kOut; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        scales.push_back(f32_to_f16(scale(r, g)));
        biases.push_back(f32_to_f16(-scale(r, g) * static_cast<float>(zero_of(r, g))));
      }
    file.add("m.weight", "U32", {kOut, kIn / 8}, levels);
    file.add("m.scales", "F16", {kOut, groups}, scales);
    file.add("m.biases", "F16", {kOut, groups}, biases);
    return file;
  }
  for (int64_t g = 0; g < groups; ++g) {
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i) {
      scales.push_back(f32_to_f16(scale(i, g)));
      const int row = method == Method::awq ? kAwqOrder[i] : i;
      word |= ((zero_of(row, g) - (minus_one ? 1 : 0)) & 15) << (4 * i);
    }
    zeros.push_back(word);
  }
  const bool awq = method == Method::awq;
  file.add("m.qweight", "I32", awq ? std::vector<int64_t>{kIn, 1} : std::vector<int64_t>{kIn / 8, kOut}, levels);
  file.add("m.qzeros", "I32", {groups, 1}, zeros);
  file.add("m.scales", "F16", {groups, kOut}, scales);
  return file;
}

std::vector<float> unpack(const Checkpoint& checkpoint, DType type) {
  const TensorView& tensor = checkpoint.get("m.weight");
  EXPECT_EQ(tensor.dtype, type);
  EXPECT_EQ(tensor.shape, (std::vector<int64_t>{kOut, kIn}));
  EXPECT_EQ(checkpoint.tensors().size(), 1u);
  const std::shared_ptr<PageBuffer> computed = checkpoint.compute(tensor);
  std::vector<float> values(kOut * kIn);
  dequantize(tensor.dtype, computed->bytes().data(), values.size(), values.data());
  return values;
}

TEST(PackedWeights, EveryLevelIsWhereItBelongs) {
  for (const Method method : {Method::awq, Method::gptq, Method::mlx})
    for (const int64_t group_size : {32, 64})
      for (const bool symmetric : {false, true})
        for (const bool minus_one : {false, true}) {
          const bool gptq = method == Method::gptq;
          if (!gptq && (symmetric || minus_one)) continue;
          PackedFormat format{.method = method, .width = {4, group_size}};
          format.symmetric = symmetric;
          format.zero_minus_one = minus_one;
          const auto checkpoint = unpack_checkpoint(pack(method, group_size, symmetric, minus_one).open(), format, 2);
          const std::vector<float> values = unpack(*checkpoint, symmetric ? DType::q4_0 : DType::q4_1);
          for (int64_t r = 0; r < kOut; ++r)
            for (int64_t c = 0; c < kIn; ++c) {
              const int64_t g = c / group_size;
              const auto z = static_cast<float>(symmetric ? 8 : zero(r, g));
              // These scales times a zero point are exact in f16.
              EXPECT_EQ(values[static_cast<size_t>(r * kIn + c)], scale(r, g) * (static_cast<float>(level(r, c)) - z))
                  << static_cast<int>(method) << " " << group_size << " row " << r << " column " << c;
            }
        }
}

TEST(PackedWeights, ActOrderTakesEachColumnsOwnGroup) {
  File file = pack(Method::gptq, 32, false, true);
  std::vector<int32_t> order(kIn);
  for (size_t i = 0; i < kIn; ++i) order[i] = static_cast<int32_t>(i % 2);
  file.add("m.g_idx", "I32", {kIn}, order);
  PackedFormat format{.method = Method::gptq, .width = {4, 32}};
  const std::vector<float> values = unpack(*unpack_checkpoint(file.open(), format, 1), DType::q8_0);
  for (int64_t r = 0; r < kOut; ++r)
    for (int64_t c = 0; c < kIn; ++c) {
      const float expected = scale(r, c % 2) * (static_cast<float>(level(r, c)) - static_cast<float>(zero(r, c % 2)));
      EXPECT_NEAR(values[static_cast<size_t>(r * kIn + c)], expected, 15 * scale(r, 1) / 254) << r << " " << c;
    }
}

TEST(PackedWeights, WhatIsNotWholeIsNamed) {
  const auto opening = [](const File& file, const PackedFormat& format) {
    return [=] { unpack_checkpoint(file.open(), format, 1); };
  };
  PackedFormat gptq{.method = Method::gptq, .width = {4, 32}};
  File file = pack(Method::gptq, 32, false, true);
  std::vector<int32_t> order(kIn, 0);
  order[5] = 2;
  file.add("m.g_idx", "I32", {kIn}, order);
  expect_error(ErrorKind::bad_file, "tensor m.g_idx: names group 2 of 2", opening(file, gptq));
  gptq.width.group_size = 64;
  expect_error(ErrorKind::bad_file, "tensor m.scales: its shape is [2, 8], expected [1, 8]",
               opening(pack(Method::gptq, 32, false, true), gptq));
  gptq.width.group_size = 96;
  expect_error(ErrorKind::bad_file, "64 columns are no multiple of the group of 96",
               opening(pack(Method::gptq, 32, false, true), gptq));
  File levels_only;
  levels_only.add("m.qweight", "I32", {8, 8}, std::vector<int32_t>(64));
  gptq.width.group_size = 32;
  expect_error(ErrorKind::bad_file, "tensor m.scales is missing", opening(levels_only, gptq));
  File wrong_words;
  wrong_words.add("m.qweight", "I64", {8, 8}, std::vector<int64_t>(64));
  wrong_words.add("m.scales", "F16", {2, 8}, std::vector<uint16_t>(16));
  expect_error(ErrorKind::bad_file, "expected 32-bit words", opening(wrong_words, gptq));

  gptq.symmetric = true;
  expect_error(ErrorKind::bad_file, "a zero point is not the middle level",
               opening(pack(Method::gptq, 32, false, true), gptq));
  // In the second group: seen when the matrix is made.
  File later;
  later.add("m.qweight", "I32", {8, 8}, std::vector<uint32_t>(64));
  later.add("m.qzeros", "I32", {2, 1}, std::vector<uint32_t>{0x77777777, 0x77747777});
  later.add("m.scales", "F16", {2, 8}, std::vector<uint16_t>(16));
  const auto checkpoint = unpack_checkpoint(later.open(), gptq, 1);
  expect_error(ErrorKind::bad_file, "a zero point is not the middle level",
               [&] { checkpoint->compute(checkpoint->get("m.weight")); });
}

}  // namespace
}  // namespace ingot
