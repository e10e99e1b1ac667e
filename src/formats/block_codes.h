#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/dtype.h"
#include "core/half.h"

// Reading the block formats of GGUF: codes of 32 columns as 8 words of 4, and scales, as they are stored. What packing
// and dequantizing are made of.
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

inline float load_f16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return f16_to_f32(v);
}

// The block in the file, of 32 or of 256 columns, that has columns 32 `block` and on.
template <DType kType>
const uint8_t* stored_block(const uint8_t* row, int64_t block) {
  constexpr DTypeInfo kInfo = dtype_info(kType);
  return row + block / (kInfo.block_size / 32) * kInfo.block_bytes;
}

// Bits 0..3 of b to the lowest bit of the four bytes.
inline uint32_t spread_bits(uint32_t b) { return (b & 15) * 0x00204081u & 0x01010101u; }

// Codes of block `block` (32 columns) of a row that starts at `row`: words[j] has columns 4j..4j+3.
//
// Blocks of 32: nibble j is column j in its low half, column j + 16 in its high half; high bit i is that of column i;
// bytes are signed. Blocks of 256: in every 128 columns, the four 32s lie over each other in the bits of the same 32
// bytes when they are of 2 bits; nibbles of two neighbouring 32s share 32 bytes, but where 2 more bits belong to them,
// a 32 and the next but one do; all eight 32s share the bytes of one high bit.
template <DType kType>
void block_codes(const uint8_t* row, int64_t block, uint32_t (&words)[8]) {
  constexpr uint32_t kNibbles = 0x0f0f0f0fu, kPairs = 0x03030303u, kBits = 0x01010101u;
  constexpr BlockLayout kLayout = dtype_info(kType).layout;
  const uint8_t* from = stored_block<kType>(row, block);
  const uint8_t *low = from + kLayout.low_at, *high = from + kLayout.high_at;
  if constexpr (kLayout.low_bits == 8) {
    for (int j = 0; j < 8; ++j) words[j] = load_u32(low + 4 * j) ^ 0x80808080u;
  } else if constexpr (dtype_info(kType).block_size == 32) {
    const uint32_t bits = kLayout.high_bits == 1 ? load_u32(high) : 0;
    for (int j = 0; j < 4; ++j) {
      const uint32_t both = load_u32(low + 4 * j);
      words[j] = (both & kNibbles) | spread_bits(bits >> (4 * j)) << 4;
      words[j + 4] = (both >> 4 & kNibbles) | spread_bits(bits >> (4 * j + 16)) << 4;
    }
  } else {
    const int sub = static_cast<int>(static_cast<uint64_t>(block) % 8), half = sub / 4, quarter = sub % 4;
    for (int j = 0; j < 8; ++j) {
      if constexpr (kLayout.low_bits == 2)
        words[j] = load_u32(low + 32 * half + 4 * j) >> (2 * quarter) & kPairs;
      else if constexpr (kLayout.high_bits == 2)
        words[j] = load_u32(low + 64 * half + 32 * (quarter % 2) + 4 * j) >> (quarter / 2 * 4) & kNibbles;
      else
        words[j] = load_u32(low + 32 * (sub / 2) + 4 * j) >> (sub % 2 * 4) & kNibbles;
      if constexpr (kLayout.high_bits == 1) words[j] |= (load_u32(high + 4 * j) >> sub & kBits) << kLayout.low_bits;
      if constexpr (kLayout.high_bits == 2)
        words[j] |= (load_u32(high + 32 * half + 4 * j) >> (2 * quarter) & kPairs) << kLayout.low_bits;
    }
  }
}

// The integers that scale 16 columns, the i-th of a block of 256 that starts at `from`.
struct SubScale {
  int scale, min;
};
template <DType kType>
SubScale block_sub_scale(const uint8_t* from, int i) {
  constexpr Scales kScales = dtype_info(kType).layout.scales;
  const uint8_t* p = from + dtype_info(kType).layout.sub_at;
  if constexpr (kScales == Scales::super16) {
    return {static_cast<int8_t>(p[i]), 0};
  } else if constexpr (kScales == Scales::super16_min) {
    return {p[i] & 15, p[i] >> 4};
  } else if constexpr (kScales == Scales::super16_six) {
    const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4;
    const int high = p[8 + i % 4] >> (i / 4 * 2) & 3;
    return {(low | high << 4) - 32, 0};
  } else {  // the first four of each whole, the upper bits of the rest above them
    i /= 2;
    if (i < 4) return {p[i] & 63, p[i + 4] & 63};
    return {(p[i + 4] & 15) | (p[i - 4] >> 6) << 4, p[i + 4] >> 4 | (p[i] >> 6) << 4};
  }
}

// Scale and min of half (16 columns) of block `block` of a row.
struct BlockScale {
  float scale, min;
};
template <DType kType>
BlockScale block_scale(const uint8_t* row, int64_t block, int half) {
  constexpr BlockLayout kLayout = dtype_info(kType).layout;
  const uint8_t* from = stored_block<kType>(row, block);
  const float d = load_f16(from + kLayout.d_at);
  const float second = has_min(kLayout.scales) ? load_f16(from + kLayout.d_at + 2) : 0;
  if constexpr (dtype_info(kType).block_size == 32) {
    return {d, second};
  } else {
    const SubScale sub = block_sub_scale<kType>(from, static_cast<int>(block % 8) * 2 + half);
    return {d * static_cast<float>(sub.scale), -(second * static_cast<float>(sub.min))};
  }
}

}  // namespace ingot
