#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "backend/cpu/simd/common.h"

// See avx512.h. Armv8.0.
namespace ingot::cpu::neon {

typedef float Vec __attribute__((vector_size(16)));
typedef int32_t IVec __attribute__((vector_size(16)));
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
constexpr bool kWidensFast = true;

// By bytes, which may be of any type.
INGOT_INLINE Vec load(const void* p) { return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t*>(p))); }
INGOT_INLINE void store(float* p, Vec v) { vst1q_f32(p, v); }
INGOT_INLINE Vec broadcast(float x) { return vdupq_n_f32(x); }
INGOT_INLINE Vec fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }

INGOT_INLINE Vec load_f16(const void* p) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(static_cast<const uint8_t*>(p))));
}
INGOT_INLINE Vec load_bf16(const void* p) {
  return (Vec)vshll_n_u16(vreinterpret_u16_u8(vld1_u8(static_cast<const uint8_t*>(p))), 16);
}
// Four bytes, in the low half: the rest may not be there to be read.
INGOT_INLINE int32x2_t load_word(const void* p) { return vdup_n_s32(*static_cast<const AnyInt*>(p)); }
INGOT_INLINE Vec load_i8(const void* p) {
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(load_word(p))))));
}
INGOT_INLINE void widen8_f16(const void* p, float* out) {
  const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
  vst1q_f32(out, vcvt_f32_f16(vget_low_f16(halves)));
  vst1q_f32(out + 4, vcvt_high_f32_f16(halves));
}
INGOT_INLINE void widen8_i8(const void* p, float* out) {
  const int16x8_t words = vmovl_s8(vld1_s8(static_cast<const int8_t*>(p)));
  vst1q_f32(out, vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))));
  vst1q_f32(out + 4, vcvtq_f32_s32(vmovl_high_s16(words)));
}
INGOT_INLINE void store_f16(uint16_t* p, Vec v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
INGOT_INLINE void store_i8(int8_t* p, Vec v) {
  const int16x4_t words = vqmovn_s32(vcvtnq_s32_f32(v));
  *reinterpret_cast<AnyInt*>(p) = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
}

INGOT_INLINE float reduce_max(Vec v) { return vmaxvq_f32(v); }
INGOT_INLINE float reduce_add(Vec v) { return vaddvq_f32(v); }

}  // namespace ingot::cpu::neon
