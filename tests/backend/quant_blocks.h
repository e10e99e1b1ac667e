#pragma once

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "core/half.h"

// Random tensors of every format and their values, written out element by element from the definitions of the formats:
// slow and independent of the code under test.
namespace ingot::test {

inline double half_at(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return f16_to_f32(v);
}

// The value of column `k` of a row. Exact: every format's values fit a double.
inline double value_at(DType type, const uint8_t* row, int64_t k) {
  const DTypeInfo& info = dtype_info(type);
  const uint8_t* b = row + k / info.block_size * info.block_bytes;
  const int i = static_cast<int>(k % info.block_size);
  switch (type) {
    case DType::f32: {
      float v;
      std::memcpy(&v, b, 4);
      return v;
    }
    case DType::f16: return half_at(b);
    case DType::bf16: {
      uint16_t v;
      std::memcpy(&v, b, 2);
      return bf16_to_f32(v);
    }
    case DType::q4_0: return half_at(b) * ((i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4) - 8);
    case DType::q4_1: return half_at(b) * (i < 16 ? b[4 + i] & 15 : b[4 + i - 16] >> 4) + half_at(b + 2);
    case DType::q5_0: {
      const int high = b[2 + i / 8] >> (i % 8) & 1;
      return half_at(b) * (((i < 16 ? b[6 + i] & 15 : b[6 + i - 16] >> 4) | high << 4) - 16);
    }
    case DType::q5_1: {
      const int high = b[4 + i / 8] >> (i % 8) & 1;
      return half_at(b) * ((i < 16 ? b[8 + i] & 15 : b[8 + i - 16] >> 4) | high << 4) + half_at(b + 2);
    }
    case DType::q8_0: return half_at(b) * static_cast<int8_t>(b[2 + i]);
    case DType::q2_k: {
      const int q = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
      const int s = b[i / 16];
      return half_at(b + 80) * (s & 15) * q - half_at(b + 82) * (s >> 4);
    }
    case DType::q3_k: {
      const int q = (b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - ((b[i % 32] >> (i / 32) & 1) ? 0 : 4);
      const int g = i / 16;
      const int low = g < 8 ? b[96 + g] & 15 : b[96 + g - 8] >> 4;
      const int scale = (low | (b[104 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
      return half_at(b + 108) * scale * q;
    }
    case DType::q4_k:
    case DType::q5_k: {
      const int g = i / 32;
      const uint8_t* p = b + 4;
      const int scale = g < 4 ? p[g] & 63 : (p[g + 4] & 15) | (p[g - 4] >> 6) << 4;
      const int min = g < 4 ? p[g + 4] & 63 : (p[g + 4] >> 4) | (p[g] >> 6) << 4;
      const uint8_t* qs = type == DType::q4_k ? b + 16 : b + 48;
      int q = g % 2 == 0 ? qs[g / 2 * 32 + i % 32] & 15 : qs[g / 2 * 32 + i % 32] >> 4;
      if (type == DType::q5_k) q |= (b[16 + i % 32] >> g & 1) << 4;
      return half_at(b) * scale * q - half_at(b + 2) * min;
    }
    case DType::q6_k: {
      const int n = i / 128, l = i % 32, quarter = i % 128 / 32;
      const int low = b[n * 64 + (quarter % 2) * 32 + l] >> (quarter / 2 * 4) & 15;
      const int high = b[128 + n * 32 + l] >> (quarter * 2) & 3;
      return half_at(b + 208) * static_cast<int8_t>(b[192 + i / 16]) * ((low | high << 4) - 32);
    }
    case DType::iq4_nl: {
      constexpr int kNumbers[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
      return half_at(b) * kNumbers[i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4];
    }
  }
  return 0;
}

// Where the f16 scales of a block lie: at most two.
inline std::vector<int> half_offsets(DType type) {
  switch (type) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0:
    case DType::iq4_nl: return {0};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return {0, 2};
    case DType::q2_k: return {80, 82};
    case DType::q3_k: return {108};
    case DType::q6_k: return {208};
    default: return {};
  }
}

// [rows, cols] with values of about unit size: every code pattern, scales of either sign.
inline std::vector<uint8_t> random_tensor(DType type, int64_t rows, int64_t cols, std::mt19937& rng) {
  const DTypeInfo& info = dtype_info(type);
  std::vector<uint8_t> bytes(dtype_bytes(type, static_cast<size_t>(rows * cols)));
  std::normal_distribution<float> normal;
  if (info.block_size == 1) {
    for (int64_t i = 0; i < rows * cols; ++i) {
      const float v = normal(rng);
      const uint16_t h = type == DType::f16 ? f32_to_f16(v) : f32_to_bf16(v);
      if (type == DType::f32)
        std::memcpy(&bytes[i * 4], &v, 4);
      else
        std::memcpy(&bytes[i * 2], &h, 2);
    }
    return bytes;
  }
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
  for (size_t block = 0; block < bytes.size(); block += info.block_bytes)
    for (int offset : half_offsets(type)) {
      const uint16_t h = f32_to_f16(0.05f * normal(rng));
      std::memcpy(&bytes[block + offset], &h, 2);
    }
  return bytes;
}

}  // namespace ingot::test
