#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/simd/common.h"

// See avx512.h. AVX2 with FMA and F16C.
namespace ingot::cpu::avx2 {

typedef float Vec __attribute__((vector_size(32)));
typedef int32_t IVec __attribute__((vector_size(32)));
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
constexpr bool kWidensFast = true;

INGOT_INLINE Vec load(const void* p) { return _mm256_loadu_ps(static_cast<const float*>(p)); }
INGOT_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
INGOT_INLINE Vec broadcast(float x) { return _mm256_set1_ps(x); }
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }

INGOT_INLINE Vec load_f16(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
INGOT_INLINE Vec load_bf16(const void* p) {
  const __m128i halves = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
}
INGOT_INLINE Vec load_i8(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
INGOT_INLINE void widen8_f16(const void* p, float* out) { store(out, load_f16(p)); }
INGOT_INLINE void widen8_i8(const void* p, float* out) { store(out, load_i8(p)); }
INGOT_INLINE void store_f16(uint16_t* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INGOT_INLINE void store_i8(int8_t* p, Vec v) {
  const __m256i words = _mm256_cvtps_epi32(v);
  const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
}

INGOT_INLINE float reduce_max(Vec v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
INGOT_INLINE float reduce_add(Vec v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

}  // namespace ingot::cpu::avx2
