#pragma once

#include <arm_neon.h>

#include <cstdint>

// See simd_avx512.h. Armv8.0.
namespace ingot::cpu::neon {

typedef float Vec __attribute__((vector_size(16)));
typedef int32_t IVec __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;
inline constexpr int kBlockRows = 6;  // most rows of a block of accumulators
inline constexpr int kRegisters = 32;
inline constexpr bool kDirect = true;

static inline Vec load(const float* p) { return (Vec)vld1q_f32(p); }
static inline void store(float* p, Vec v) { vst1q_f32(p, (float32x4_t)v); }
static inline Vec broadcast(float x) { return (Vec)vdupq_n_f32(x); }
static inline Vec fma(Vec a, Vec b, Vec c) { return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
static inline Vec load_f16(const uint16_t* p) { return (Vec)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline Vec load_bf16(const uint16_t* p) { return (Vec)vshll_n_u16(vld1_u16(p), 16); }
static inline void widen8_f16(const uint16_t* p, float* out) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(p));
  vst1q_f32(out, vcvt_f32_f16(vget_low_f16(halves)));
  vst1q_f32(out + 4, vcvt_high_f32_f16(halves));
}
static inline void store_f16(uint16_t* p, Vec v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)v))); }
// Four bytes, in the low half: the rest may not be there to be read.
static inline int8x8_t load_bytes(const int8_t* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return vreinterpret_s8_s32(vdup_n_s32(word));
}
static inline Vec load_i8(const int8_t* p) {
  return (Vec)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(load_bytes(p)))));
}
static inline void widen8_i8(const int8_t* p, float* out) {
  const int16x8_t words = vmovl_s8(vld1_s8(p));
  vst1q_f32(out, vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))));
  vst1q_f32(out + 4, vcvtq_f32_s32(vmovl_high_s16(words)));
}
// To the nearest integer, of two the even one.
static inline void store_i8(int8_t* p, Vec v) {
  const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32((float32x4_t)v));
  const int32_t bytes = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
  __builtin_memcpy(p, &bytes, sizeof bytes);
}
static inline float reduce_max(Vec v) { return vmaxvq_f32((float32x4_t)v); }
static inline float reduce_add(Vec v) { return vaddvq_f32((float32x4_t)v); }

}  // namespace ingot::cpu::neon
