#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/dtype.h"

// Reading the block formats of GGUF: codes of 32 columns as 8 words of 4, and scales as they are stored. For packing.
// `row` points at the first block of a row.
namespace ingot {

// Calls f with the type as a compile-time constant.
template <typename F>
void with_dtype(DType type, F&& f) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    (void)((type == kDTypes[i].type && (f.template operator()<kDTypes[i].type>(), true)) || ...);
  }(std::make_index_sequence<kNumDTypes>{});
}

inline uint32_t load_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// Bits 0..3 of b to the lowest bit of the four bytes.
inline uint32_t spread_bits(uint32_t b) { return (b & 15) * 0x00204081u & 0x01010101u; }

// Codes of block `block` (32 columns) of a row: words[j] has columns 4j..4j+3.
template <DType kType>
void block_codes(const uint8_t* row, int64_t block, uint32_t (&words)[8]) {
  constexpr uint32_t kNibbles = 0x0f0f0f0fu, kPairs = 0x03030303u, kBits = 0x01010101u;
  if constexpr (kType == DType::q4_0 || kType == DType::q4_1 || kType == DType::q5_0 || kType == DType::q5_1) {
    constexpr bool kMin = kType == DType::q4_1 || kType == DType::q5_1;
    constexpr bool kFive = kType == DType::q5_0 || kType == DType::q5_1;
    const uint8_t* p = row + block * (2 + 2 * kMin + 4 * kFive + 16) + 2 + 2 * kMin;
    const uint32_t high = kFive ? load_u32(p) : 0;
    if (kFive) p += 4;
    for (int j = 0; j < 4; ++j) {
      const uint32_t both = load_u32(p + 4 * j);
      words[j] = (both & kNibbles) | spread_bits(high >> (4 * j)) << 4;
      words[j + 4] = (both >> 4 & kNibbles) | spread_bits(high >> (4 * j + 16)) << 4;
    }
  } else if constexpr (kType == DType::q8_0) {
    const uint8_t* p = row + block * 34 + 2;
    for (int j = 0; j < 8; ++j) words[j] = load_u32(p + 4 * j) ^ 0x80808080u;
  } else {
    constexpr int kBytes = kType == DType::q2_k   ? 84
                           : kType == DType::q3_k ? 110
                           : kType == DType::q4_k ? 144
                           : kType == DType::q5_k ? 176
                                                  : 210;
    const uint8_t* super = row + block / 8 * kBytes;
    const int sub = static_cast<int>(block % 8);  // 32 columns each
    const int half = sub / 4, quarter = sub % 4;
    for (int j = 0; j < 8; ++j) {
      if constexpr (kType == DType::q2_k) {  // u8 scales[16], qs[64], f16 d, dmin
        words[j] = load_u32(super + 16 + 32 * half + 4 * j) >> (2 * quarter) & kPairs;
      } else if constexpr (kType == DType::q3_k) {  // hmask[32], qs[64], scales[12], f16 d
        words[j] = (load_u32(super + 32 + 32 * half + 4 * j) >> (2 * quarter) & kPairs) |
                   (load_u32(super + 4 * j) >> sub & kBits) << 2;
      } else if constexpr (kType == DType::q4_k) {  // f16 d, dmin, scales[12], qs[128]
        words[j] = load_u32(super + 16 + 32 * (sub / 2) + 4 * j) >> (sub % 2 * 4) & kNibbles;
      } else if constexpr (kType == DType::q5_k) {  // f16 d, dmin, scales[12], qh[32], qs[128]
        words[j] = (load_u32(super + 48 + 32 * (sub / 2) + 4 * j) >> (sub % 2 * 4) & kNibbles) |
                   (load_u32(super + 16 + 4 * j) >> sub & kBits) << 4;
      } else {  // q6_k: ql[128], qh[64], i8 scales[16], f16 d
        words[j] = (load_u32(super + 64 * half + 32 * (quarter % 2) + 4 * j) >> (quarter / 2 * 4) & kNibbles) |
                   (load_u32(super + 128 + 32 * half + 4 * j) >> (2 * quarter) & kPairs) << 4;
      }
    }
  }
}

// The 6-bit scale (and min) of sub-block i of a Q4_K or Q5_K super-block's 12 bytes.
inline void block_scale_min(const uint8_t* p, int i, uint8_t& scale, uint8_t& min) {
  if (i < 4) {
    scale = p[i] & 63;
    min = p[i + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((p[i + 4] & 15) | (p[i - 4] >> 6) << 4);
    min = static_cast<uint8_t>((p[i + 4] >> 4) | (p[i] >> 6) << 4);
  }
}

// The 6-bit scale, less 32, of sub-block i of a Q3_K super-block's 12 bytes.
inline int8_t block_scale_q3(const uint8_t* p, int i) {
  const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
  const int high = p[8 + i % 4] >> (i / 4 * 2) & 3;
  return static_cast<int8_t>((low | high << 4) - 32);
}

}  // namespace ingot
