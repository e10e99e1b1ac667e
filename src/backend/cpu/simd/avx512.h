#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/simd/common.h"

// The vectors that every kernel is written in, on AVX-512. Each header of this folder offers the same names in its own
// namespace: Vec, kLanes floats, and IVec, as many int32, with the operators of C++; and the functions below. A file is
// compiled for one of them; all have internal linkage, so that nothing is shared with files for other processors.
// Products of bytes have more of their own: linear/machine_*.h.
namespace ingot::cpu::avx512 {

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IVec __attribute__((vector_size(64)));
constexpr int kLanes = 16;
constexpr int kRegisters = 32;      // for blocks of accumulators
constexpr bool kWidensFast = true;  // floats of 16 bits convert as fast as they load

// Vectors lie anywhere: no pointer is aligned, and bytes may be of another type.
INGOT_INLINE Vec load(const void* p) { return _mm512_loadu_ps(p); }
INGOT_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }
INGOT_INLINE Vec broadcast(float x) { return _mm512_set1_ps(x); }
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }  // a * b + c

// kLanes numbers of 16 or 8 bits as floats.
INGOT_INLINE Vec load_f16(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
INGOT_INLINE Vec load_bf16(const void* p) {
  const __m256i halves = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}
INGOT_INLINE Vec load_i8(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
// Eight of them, whatever kLanes is.
INGOT_INLINE void widen8_f16(const void* p, float* out) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
INGOT_INLINE void widen8_i8(const void* p, float* out) {
  const __m128i bytes = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  _mm256_storeu_ps(out, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}
// To the nearest number, of two the even one.
INGOT_INLINE void store_f16(uint16_t* p, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
INGOT_INLINE void store_i8(int8_t* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
}

// Of all lanes. The order of the sum is the path's own.
INGOT_INLINE float reduce_max(Vec v) { return _mm512_reduce_max_ps(v); }
INGOT_INLINE float reduce_add(Vec v) { return _mm512_reduce_add_ps(v); }

}  // namespace ingot::cpu::avx512
