#pragma once

#include <cstdint>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "backend/cpu/simd/common.h"

// See avx512.h. Four lanes by compiler vector extensions: SSE2 on x86-64, NEON on Arm. Not INGOT_INLINE: forced, it
// changes which of the loops around it the compiler inlines.
namespace ingot::cpu::portable {

typedef float Vec __attribute__((vector_size(16)));
typedef int32_t IVec __attribute__((vector_size(16)));
constexpr int kLanes = 4;
#if defined(__aarch64__)
constexpr int kRegisters = 32;
#else
constexpr int kRegisters = 14;  // of 16: products need some too
#endif
constexpr bool kWidensFast = false;

static inline Vec load(const void* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
static inline void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
static inline Vec broadcast(float x) { return Vec{x, x, x, x}; }
static inline Vec fma(Vec a, Vec b, Vec c) {
#if defined(__aarch64__)
  return vfmaq_f32(c, a, b);
#else
  return a * b + c;
#endif
}

// Branch-free, so that the loops around it vectorize. 2^112 moves the exponent; subnormals come out right on the way.
static inline float widen_f16(uint16_t h) {
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const float scaled = __builtin_bit_cast(float, magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, scaled) | special | sign);
}
static inline Vec load_f16(const uint16_t* p) {
  return Vec{widen_f16(p[0]), widen_f16(p[1]), widen_f16(p[2]), widen_f16(p[3])};
}
static inline void widen8_f16(const uint16_t* p, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = widen_f16(p[i]);
}
static inline Vec load_bf16(const uint16_t* p) { return (Vec)(IVec{p[0] << 16, p[1] << 16, p[2] << 16, p[3] << 16}); }

static inline uint16_t narrow_f16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t sign = (bits >> 16) & 0x8000;
  // Adding 0.5 makes the FPU round a small number at the last bit a subnormal half has.
  const float lifted = __builtin_bit_cast(float, magnitude) + 0.5f;
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, lifted) - 0x3f000000u;
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000u) >> 13;
  uint32_t half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(sign | half);
}
static inline void store_f16(uint16_t* p, Vec v) {
  for (int i = 0; i < kLanes; ++i) p[i] = narrow_f16(v[i]);
}
static inline Vec load_i8(const int8_t* p) {
  return Vec{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
}
static inline void widen8_i8(const int8_t* p, float* out) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<float>(p[i]);
}
static inline void store_i8(int8_t* p, Vec v) {
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  const IVec rounded = (IVec)(v + broadcast(0x1.8p23f));
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(rounded[i]);
}
static inline float reduce_max(Vec v) {
  const float a = v[0] > v[2] ? v[0] : v[2];
  const float b = v[1] > v[3] ? v[1] : v[3];
  return a > b ? a : b;
}
static inline float reduce_add(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

}  // namespace ingot::cpu::portable
