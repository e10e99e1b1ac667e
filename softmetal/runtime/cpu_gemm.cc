#include "runtime/cpu_gemm.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace softmetal {
namespace {

float from_half(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float value =
      std::ldexp(static_cast<float>(exponent == 0 ? mantissa : mantissa | 1024), (exponent == 0 ? 1 : exponent) - 25);
  if (exponent == 31) value = mantissa == 0 ? INFINITY : NAN;
  return bits >> 15 ? -value : value;
}

uint16_t to_half(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  if (std::isnan(value)) return sign | 0x7e00;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);  // size < 2^exponent
  const int shift = std::max(exponent, -13) - 11;
  // Ties to even, as the host's own rounding is. A mantissa that overflows carries into the exponent.
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -shift)));
  return sign | static_cast<uint16_t>(mantissa + (static_cast<uint32_t>(shift + 24) << 10));
}

float number_at(GemmType type, const char* data, size_t i) {
  if (type == GemmType::f32) {
    float value = 0;
    std::memcpy(&value, data + i * 4, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, data + i * 2, 2);
  return type == GemmType::f16 ? from_half(bits) : std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void put_number(GemmType type, char* data, size_t i, float value) {
  if (type == GemmType::f32) {
    std::memcpy(data + i * 4, &value, 4);
    return;
  }
  uint16_t bits = 0;
  if (type == GemmType::f16) {
    bits = to_half(value);
  } else {  // to nearest, ties to even; a NaN stays one
    const auto word = std::bit_cast<uint32_t>(value);
    bits = static_cast<uint16_t>(std::isnan(value) ? word >> 16 | 0x40u : (word + 0x7fffu + (word >> 16 & 1u)) >> 16);
  }
  std::memcpy(data + i * 2, &bits, 2);
}

}  // namespace

void multiply_plainly(const GemmShape& s, uint64_t rows, const char* x, const char* weights, char* out) {
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t n = 0; n < s.outputs; ++n) {
      float sum = 0;
      for (uint64_t k = 0; k < s.cols; ++k)
        sum += number_at(s.type, x, r * s.stride + k) * number_at(s.type, weights, n * s.stride + k);
      const size_t at = r * s.out_stride + n;
      put_number(s.out, out, at, s.accumulate ? number_at(s.out, out, at) + sum : sum);
    }
}

}  // namespace softmetal
