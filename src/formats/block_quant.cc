#include "formats/block_quant.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/half.h"
#include "formats/block_codes.h"
#include "formats/quantize_k.h"

namespace ingot {
namespace {

constexpr int kSmall = 32;  // elements of a q4_0 ... q8_0 block

void store_f16(uint8_t* p, float value) {
  const uint16_t half = f32_to_f16(value);
  std::memcpy(p, &half, sizeof(half));
}

template <DType kType>
void read_blocks(const uint8_t* blocks, size_t elements, float* out) {
  constexpr BlockLayout kLayout = dtype_info(kType).layout;
  for (int64_t block = 0; block < static_cast<int64_t>(elements / 32); ++block) {
    uint32_t words[8];
    block_codes<kType>(blocks, block, words);
    uint8_t codes[32];
    std::memcpy(codes, words, sizeof(codes));
    for (int half = 0; half < 2; ++half) {
      const auto [scale, min] = block_scale<kType>(blocks, block, half);
      for (int i = 16 * half; i < 16 * half + 16; ++i) {
        const float value = scale * static_cast<float>(kLayout.number(codes[i]) - kLayout.zero);
        *out++ = has_min(kLayout.scales) ? value + min : value;
      }
    }
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

// By code: the numbers of iq4_nl, in order, and the codes themselves.
using ByCode = std::array<float, 16>;
constexpr ByCode by_code(int (*value)(int code)) {
  ByCode values = {};
  for (int code = 0; code < 16; ++code) values[static_cast<size_t>(code)] = static_cast<float>(value(code));
  return values;
}
constexpr ByCode kCodes = by_code([](int code) { return code; });
constexpr ByCode kNumbers = by_code([](int code) { return dtype_info(DType::iq4_nl).layout.number(code) - 128; });

// What belongs to the code of the number that is nearest, for several x at a time; NaN: code 0.
using Four = float __attribute__((vector_size(16)));
Four at_nearest(Four x, const ByCode& of) {
  Four result = Four{} + of[0];
  for (size_t i = 0; i < 15; ++i)
    result += x > (kNumbers[i] + kNumbers[i + 1]) / 2 ? Four{} + (of[i + 1] - of[i]) : Four{};
  return result;
}

// iq4_nl: scales that bring the extreme value to either end of the numbers, or near it, are tried; each becomes the one
// of least squares for its codes, and the best stays. Large elements weigh more, as they do in a product.
void write_iq4_nl(const float* x, uint8_t* b) {
  constexpr int kAtOnce = 4;
  Four values[kSmall / kAtOnce], weights[kSmall / kAtOnce];
  std::memcpy(values, x, sizeof(values));
  const auto sum = [](Four v) { return (v[0] + v[1]) + (v[2] + v[3]); };
  Four squares = {};
  for (const Four value : values) squares += value * value;
  const float deviation = std::sqrt(sum(squares) / kSmall), extreme = signed_extreme(x);
  for (int j = 0; j < kSmall; ++j) weights[j / kAtOnce][j % kAtOnce] = deviation + std::fabs(x[j]);

  float best = extreme / kNumbers[0], most = -1;  // of the squares of x, that a scale accounts for
  for (const float end : {kNumbers.front(), kNumbers.back()})
    for (const float near : {0.9f, 0.95f, 1.0f, 1.05f, 1.1f}) {
      const float id = end * near * inverse(extreme);
      Four qx = {}, qq = {};
      for (int i = 0; i < kSmall / kAtOnce; ++i) {
        const Four q = at_nearest(values[i] * id, kNumbers), weighted = weights[i] * q;
        qx += weighted * values[i];
        qq += weighted * q;
      }
      const float fit = sum(qx), size = sum(qq);
      if (fit * fit > most * size) {
        most = fit * fit / size;
        best = fit / size;
      }
    }
  store_f16(b, best);
  const float id = inverse(load_f16(b));
  for (int i = 0; i < 16; i += kAtOnce) {
    const Four low = at_nearest(values[i / kAtOnce] * id, kCodes);
    const Four high = at_nearest(values[(i + 16) / kAtOnce] * id, kCodes);
    for (int j = 0; j < kAtOnce; ++j) b[2 + i + j] = static_cast<uint8_t>(low[j] + 16 * high[j]);
  }
}

struct Writer {
  DType type;
  void (*write)(const float* values, uint8_t* block);
};
constexpr Writer kWriters[] = {{DType::q8_0, write_q8_0},    {DType::q4_0, write_q4_0}, {DType::q4_1, write_q4_1},
                               {DType::q5_0, write_q5_0},    {DType::q5_1, write_q5_1}, {DType::q4_k, write_q4_k},
                               {DType::iq4_nl, write_iq4_nl}};

[[noreturn]] void decline_to_write(DType type) {
  std::vector<DType> known;
  for (const Writer& writer : kWriters) known.push_back(writer.type);
  throw_error(ErrorKind::declined, "quantizing to {} is not supported; choose {}", dtype_name(type), names_of(known));
}

}  // namespace

std::string names_of(std::span<const DType> types) {
  std::string text;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) text += i + 1 < types.size() ? ", " : " or ";
    text += dtype_name(types[i]);
  }
  return text;
}

void dequantize(DType type, const std::byte* blocks, size_t elements, float* out) {
  if (elements == 0) return;  // a tensor of no elements may have no address
  const auto* bytes = reinterpret_cast<const uint8_t*>(blocks);
  with_dtype(type, [&]<DType kType>() {
    if constexpr (is_block_quantized(kType)) {
      read_blocks<kType>(bytes, elements, out);
    } else if constexpr (kType == DType::f32) {
      std::memcpy(out, bytes, elements * sizeof(float));
    } else {
      for (size_t i = 0; i < elements; ++i) {
        uint16_t value;
        std::memcpy(&value, bytes + 2 * i, sizeof(value));
        out[i] = kType == DType::f16 ? f16_to_f32(value) : bf16_to_f32(value);
      }
    }
  });
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
    default: break;
  }
  const auto* writer = std::ranges::find(kWriters, type, &Writer::type);
  if (writer == std::end(kWriters)) decline_to_write(type);
  const DTypeInfo& info = dtype_info(type);
  for (size_t e = 0; e < elements; e += static_cast<size_t>(info.block_size), bytes += info.block_bytes)
    writer->write(values + e, bytes);
}

}  // namespace ingot
