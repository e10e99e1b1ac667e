#include "formats/block_quant.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "core/half.h"
#include "formats/quantize_k.h"

namespace ingot {
namespace {

constexpr int kSmall = 32;   // elements of a q4_0 ... q8_0 block
constexpr int kSuper = 256;  // elements of a K block

uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}
float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
void store_f16(uint8_t* p, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(p, &half, sizeof(half));
}

// ---- reading one block ----------------------------------------------------------------------------------------------
// In the formats of 32, nibble j of byte j is element j (low half) and element j + 16 (high half).

// f16 d | 16 bytes of nibbles: d * (q - 8)
void read_q4_0(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>((b[2 + j] & 15) - 8);
    out[j + 16] = d * static_cast<float>((b[2 + j] >> 4) - 8);
  }
}

// f16 d | f16 m | 16 bytes of nibbles: d * q + m
void read_q4_1(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const float m = load_f16(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(b[4 + j] & 15) + m;
    out[j + 16] = d * static_cast<float>(b[4 + j] >> 4) + m;
  }
}

// A nibble with its fifth bit out of `high` (bit i belongs to element i).
int five_bits(int nibble, uint32_t high, int element) { return nibble | static_cast<int>((high >> element) & 1) << 4; }

// f16 d | 32 fifth bits | 16 bytes of nibbles: d * (q - 16)
void read_q5_0(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const uint32_t high = load_u32(b + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(five_bits(b[6 + j] & 15, high, j) - 16);
    out[j + 16] = d * static_cast<float>(five_bits(b[6 + j] >> 4, high, j + 16) - 16);
  }
}

// f16 d | f16 m | 32 fifth bits | 16 bytes of nibbles: d * q + m
void read_q5_1(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const float m = load_f16(b + 2);
  const uint32_t high = load_u32(b + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(five_bits(b[8 + j] & 15, high, j)) + m;
    out[j + 16] = d * static_cast<float>(five_bits(b[8 + j] >> 4, high, j + 16)) + m;
  }
}

// f16 d | 32 signed bytes: d * q
void read_q8_0(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  for (int j = 0; j < kSmall; ++j) out[j] = d * static_cast<float>(static_cast<int8_t>(b[2 + j]));
}

// 16 bytes (scale | min << 4), one a group of 16 | 64 bytes of 2-bit values | f16 d | f16 dmin
// Each run of 128 elements takes 32 bytes: element 32 s + l is in bits 2 s of byte l.
void read_q2_k(const uint8_t* b, float* out) {
  const uint8_t* scales = b;
  const uint8_t* q = b + 16;
  const float d = load_f16(b + 80);
  const float dmin = load_f16(b + 82);
  for (int e = 0; e < kSuper; ++e) {
    const int run = e / 128, shift = e % 128 / 32 * 2, l = e % 32;
    const uint8_t scale = scales[e / 16];
    const int value = (q[run * 32 + l] >> shift) & 3;
    out[e] = d * static_cast<float>(scale & 15) * static_cast<float>(value) - dmin * static_cast<float>(scale >> 4);
  }
}

// 32 bytes of third bits | 64 bytes of 2-bit values as in q2_k | 12 bytes: 16 scales of 6 bits | f16 d
// The third bit of element e is bit e / 32 of byte e % 32, and it is stored inverted: unset means minus 4.
void read_q3_k(const uint8_t* b, float* out) {
  const uint8_t* high = b;
  const uint8_t* q = b + 32;
  const uint8_t* packed = b + 96;
  const float d = load_f16(b + 108);
  for (int e = 0; e < kSuper; ++e) {
    const int run = e / 128, shift = e % 128 / 32 * 2, l = e % 32;
    const int group = e / 16;
    const int low4 = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high2 = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    const int scale = (low4 | high2 << 4) - 32;
    const int third = (high[l] >> (e / 32)) & 1;
    const int value = ((q[run * 32 + l] >> shift) & 3) - (third ? 0 : 4);
    out[e] = d * static_cast<float>(scale) * static_cast<float>(value);
  }
}

// q4_k and q5_k pack 8 scales and 8 mins of 6 bits into 12 bytes: the first four of each whole, the rest in pieces.
struct ScaleMin {
  int scale, min;
};
ScaleMin scale_min(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4, (packed[group + 4] >> 4) | (packed[group] >> 6)
                                                                                                   << 4};
}

// f16 d | f16 dmin | 12 bytes of scales and mins, one a group of 32 | 128 bytes of nibbles
// Groups 2 i and 2 i + 1 are the low and high nibbles of the same 32 bytes.
void read_q4_k(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const float dmin = load_f16(b + 2);
  const uint8_t* q = b + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = scale_min(b + 4, group);
    const float scale = d * static_cast<float>(s.scale);
    const float min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = q[group / 2 * 32 + l];
      out[group * 32 + l] = scale * static_cast<float>(group % 2 == 0 ? byte & 15 : byte >> 4) - min;
    }
  }
}

// f16 d | f16 dmin | 12 bytes of scales and mins | 32 bytes of fifth bits (bit g of byte l: group g) | 128 bytes of
// nibbles
void read_q5_k(const uint8_t* b, float* out) {
  const float d = load_f16(b);
  const float dmin = load_f16(b + 2);
  const uint8_t* high = b + 16;
  const uint8_t* q = b + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin s = scale_min(b + 4, group);
    const float scale = d * static_cast<float>(s.scale);
    const float min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) {
      const uint8_t byte = q[group / 2 * 32 + l];
      const int value = (group % 2 == 0 ? byte & 15 : byte >> 4) | ((high[l] >> group) & 1) << 4;
      out[group * 32 + l] = scale * static_cast<float>(value) - min;
    }
  }
}

// 128 bytes of low nibbles | 64 bytes of high 2 bits | 16 signed scales, one a group of 16 | f16 d
// In each run of 128 elements, quarter k (32 elements) has its nibble in byte l + 32 (k % 2), low half for k < 2, and
// its high bits in bits 2 k of byte l.
void read_q6_k(const uint8_t* b, float* out) {
  const uint8_t* low = b;
  const uint8_t* high = b + 128;
  const uint8_t* scales = b + 192;
  const float d = load_f16(b + 208);
  for (int e = 0; e < kSuper; ++e) {
    const int run = e / 128, quarter = e % 128 / 32, l = e % 32;
    const uint8_t byte = low[run * 64 + quarter % 2 * 32 + l];
    const int nibble = quarter < 2 ? byte & 15 : byte >> 4;
    const int value = (nibble | ((high[run * 32 + l] >> (2 * quarter)) & 3) << 4) - 32;
    out[e] = d * static_cast<float>(static_cast<int8_t>(scales[e / 16])) * static_cast<float>(value);
  }
}

// ---- writing one block ----------------------------------------------------------------------------------------------

float signed_extreme(const float* x) {  // the value of largest magnitude, with its sign
  float extreme = 0;
  for (int j = 0; j < kSmall; ++j)
    if (std::fabs(x[j]) > std::fabs(extreme)) extreme = x[j];
  return extreme;
}

float inverse(float d) { return d == 0 ? 0 : 1 / d; }

// x is already offset by the half of the rounding; NaN (of a broken weight) becomes level 0.
int to_level(float x, float top) { return x > 0 ? static_cast<int>(std::trunc(std::min(x, top))) : 0; }

void write_q8_0(const float* x, uint8_t* b) {
  const float d = std::fabs(signed_extreme(x)) / 127;
  const float id = inverse(d);
  store_f16(b, d);
  for (int j = 0; j < kSmall; ++j) {
    const float level = std::round(x[j] * id);
    b[2 + j] = std::isnan(level) ? 0 : static_cast<uint8_t>(static_cast<int8_t>(std::clamp(level, -127.0f, 127.0f)));
  }
}

// q4_0 and q5_0: the extreme value is mapped exactly, to the most negative level.
void write_symmetric(const float* x, int half_levels, uint8_t* header, uint8_t* nibbles, uint32_t* high) {
  const float d = signed_extreme(x) / static_cast<float>(-half_levels);
  const float id = inverse(d);
  store_f16(header, d);
  *high = 0;
  const float offset = static_cast<float>(half_levels) + 0.5f, top = static_cast<float>(2 * half_levels - 1);
  for (int j = 0; j < 16; ++j) {
    const int a = to_level(x[j] * id + offset, top);
    const int b = to_level(x[j + 16] * id + offset, top);
    nibbles[j] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
    *high |= static_cast<uint32_t>(a >> 4) << j | static_cast<uint32_t>(b >> 4) << (j + 16);
  }
}

// q4_1 and q5_1: the range from smallest to largest value in equal steps.
void write_affine(const float* x, int levels, uint8_t* header, uint8_t* nibbles, uint32_t* high) {
  const auto [min, max] = std::minmax_element(x, x + kSmall);
  const float low = *min;
  const float d = (*max - low) / static_cast<float>(levels - 1);
  const float id = inverse(d);
  store_f16(header, d);
  store_f16(header + 2, low);
  *high = 0;
  const float top = static_cast<float>(levels - 1);
  for (int j = 0; j < 16; ++j) {
    const int a = to_level((x[j] - low) * id + 0.5f, top);
    const int b = to_level((x[j + 16] - low) * id + 0.5f, top);
    nibbles[j] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
    *high |= static_cast<uint32_t>(a >> 4) << j | static_cast<uint32_t>(b >> 4) << (j + 16);
  }
}

void write_q4_0(const float* x, uint8_t* b) {
  uint32_t unused;
  write_symmetric(x, 8, b, b + 2, &unused);
}
void write_q5_0(const float* x, uint8_t* b) {
  uint32_t high;
  write_symmetric(x, 16, b, b + 6, &high);
  std::memcpy(b + 2, &high, sizeof(high));
}
void write_q4_1(const float* x, uint8_t* b) {
  uint32_t unused;
  write_affine(x, 16, b, b + 4, &unused);
}
void write_q5_1(const float* x, uint8_t* b) {
  uint32_t high;
  write_affine(x, 32, b, b + 8, &high);
  std::memcpy(b + 4, &high, sizeof(high));
}

template <typename Read>
void read_blocks(DType type, const uint8_t* blocks, size_t elements, float* out, Read read) {
  const DTypeInfo& info = dtype_info(type);
  for (size_t e = 0; e < elements; e += static_cast<size_t>(info.block_size), blocks += info.block_bytes)
    read(blocks, out + e);
}

template <typename Write>
void write_blocks(DType type, const float* values, size_t elements, uint8_t* blocks, Write write) {
  const DTypeInfo& info = dtype_info(type);
  for (size_t e = 0; e < elements; e += static_cast<size_t>(info.block_size), blocks += info.block_bytes)
    write(values + e, blocks);
}

}  // namespace

void dequantize(DType type, const std::byte* blocks, size_t elements, float* out) {
  if (elements == 0) return;  // a tensor of no elements may have no address
  const auto* bytes = reinterpret_cast<const uint8_t*>(blocks);
  switch (type) {
    case DType::f32: std::memcpy(out, bytes, elements * sizeof(float)); return;
    case DType::f16:
      for (size_t i = 0; i < elements; ++i) out[i] = load_f16(bytes + 2 * i);
      return;
    case DType::bf16:
      for (size_t i = 0; i < elements; ++i) out[i] = bf16_to_f32(load_u16(bytes + 2 * i));
      return;
    case DType::q4_0: return read_blocks(type, bytes, elements, out, read_q4_0);
    case DType::q4_1: return read_blocks(type, bytes, elements, out, read_q4_1);
    case DType::q5_0: return read_blocks(type, bytes, elements, out, read_q5_0);
    case DType::q5_1: return read_blocks(type, bytes, elements, out, read_q5_1);
    case DType::q8_0: return read_blocks(type, bytes, elements, out, read_q8_0);
    case DType::q2_k: return read_blocks(type, bytes, elements, out, read_q2_k);
    case DType::q3_k: return read_blocks(type, bytes, elements, out, read_q3_k);
    case DType::q4_k: return read_blocks(type, bytes, elements, out, read_q4_k);
    case DType::q5_k: return read_blocks(type, bytes, elements, out, read_q5_k);
    case DType::q6_k: return read_blocks(type, bytes, elements, out, read_q6_k);
  }
}

void quantize(DType type, const float* values, size_t elements, std::byte* blocks) {
  auto* bytes = reinterpret_cast<uint8_t*>(blocks);
  switch (type) {
    case DType::f32:
      if (elements > 0) std::memcpy(bytes, values, elements * sizeof(float));  // nothing may have no address
      return;
    case DType::f16:
      for (size_t i = 0; i < elements; ++i) store_f16(bytes + 2 * i, values[i]);
      return;
    case DType::bf16:
      for (size_t i = 0; i < elements; ++i) {
        const uint16_t value = f32_to_bf16(values[i]);
        std::memcpy(bytes + 2 * i, &value, sizeof(value));
      }
      return;
    case DType::q8_0: return write_blocks(type, values, elements, bytes, write_q8_0);
    case DType::q4_0: return write_blocks(type, values, elements, bytes, write_q4_0);
    case DType::q4_1: return write_blocks(type, values, elements, bytes, write_q4_1);
    case DType::q5_0: return write_blocks(type, values, elements, bytes, write_q5_0);
    case DType::q5_1: return write_blocks(type, values, elements, bytes, write_q5_1);
    case DType::q4_k: return write_blocks(type, values, elements, bytes, write_q4_k);
    default:
      throw_error(ErrorKind::declined, "quantizing to {} is not supported; choose q8_0, q4_0, q4_1, q5_0, q5_1 or q4_k",
                  dtype_name(type));
  }
}

}  // namespace ingot
