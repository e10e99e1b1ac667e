#pragma once

#include <immintrin.h>

#include <cstdint>

// The vector type the kernels are written in, on AVX-512. Every simd_*.h offers the same names in its own namespace.
namespace ingot::cpu::avx512 {

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IVec __attribute__((vector_size(64)));
inline constexpr int kLanes = 16;
inline constexpr int kBlockRows = 6;  // most rows of a block of accumulators
inline constexpr int kRegisters = 32;
inline constexpr bool kDirect = true;  // 16-bit floats convert as fast as they load: use them straight from the cache

static inline Vec load(const float* p) { return (Vec)_mm512_loadu_ps(p); }
static inline void store(float* p, Vec v) { _mm512_storeu_ps(p, (__m512)v); }
static inline Vec broadcast(float x) { return (Vec)_mm512_set1_ps(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline Vec load_f16(const uint16_t* p) {
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
static inline Vec load_bf16(const uint16_t* p) {
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
}
static inline void widen8_f16(const uint16_t* p, float* out) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline void store_f16(uint16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
static inline Vec load_i8(const int8_t* p) {
  return (Vec)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline void widen8_i8(const int8_t* p, float* out) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  _mm256_storeu_ps(out, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}
// To the nearest integer, of two the even one.
static inline void store_i8(int8_t* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)v)));
}
static inline float reduce_max(Vec v) { return _mm512_reduce_max_ps((__m512)v); }
static inline float reduce_add(Vec v) { return _mm512_reduce_add_ps((__m512)v); }

}  // namespace ingot::cpu::avx512
