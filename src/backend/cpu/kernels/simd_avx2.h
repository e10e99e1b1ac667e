#pragma once

#include <immintrin.h>

#include <cstdint>

// See simd_avx512.h. AVX2 with FMA and F16C.
namespace ingot::cpu::avx2 {

typedef float Vec __attribute__((vector_size(32)));
typedef int32_t IVec __attribute__((vector_size(32)));
inline constexpr int kLanes = 8;
inline constexpr int kBlockRows = 6;  // most rows of a block of accumulators
inline constexpr int kRegisters = 16;
inline constexpr bool kDirect = true;

static inline Vec load(const float* p) { return (Vec)_mm256_loadu_ps(p); }
static inline void store(float* p, Vec v) { _mm256_storeu_ps(p, (__m256)v); }
static inline Vec broadcast(float x) { return (Vec)_mm256_set1_ps(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline Vec load_f16(const uint16_t* p) {
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
static inline Vec load_bf16(const uint16_t* p) {
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
}
static inline void widen8_f16(const uint16_t* p, float* out) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
static inline void store_f16(uint16_t* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
static inline Vec load_i8(const int8_t* p) {
  return (Vec)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
static inline void widen8_i8(const int8_t* p, float* out) { _mm256_storeu_ps(out, (__m256)load_i8(p)); }
static inline void store_i8(int8_t* p, Vec v) {
  const __m256i words = _mm256_cvtps_epi32((__m256)v);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}
static inline float reduce_max(Vec v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline float reduce_add(Vec v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128((__m256)v), _mm256_extractf128_ps((__m256)v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

}  // namespace ingot::cpu::avx2
