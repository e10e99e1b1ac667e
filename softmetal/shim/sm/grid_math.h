// Elementary functions from the instructions there are. Good to a few units in the last place; sin and cos to an
// absolute error of 2^-20 within a few turns. Functions that are not here fail when the kernel is linked, by name.
#pragma once

#include "sm/types.h"

#ifdef SM_AGX
float __spirv_ocl_native_exp2(float) __attribute__((const));
float __spirv_ocl_native_log2(float) __attribute__((const));
float __spirv_ocl_native_sin(float) __attribute__((const));
float __spirv_ocl_native_cos(float) __attribute__((const));
#define SM_INSTRUCTION(nvidia, apple) __spirv_ocl_native_##apple
#else
#define SM_INSTRUCTION(nvidia, apple) __nvvm_##nvidia##_approx_f
#endif

namespace sm {

SM_INLINE float grid_exp2(float x) { return SM_INSTRUCTION(ex2, exp2)(x); }
SM_INLINE float grid_log2(float x) { return SM_INSTRUCTION(lg2, log2)(x); }
SM_INLINE float grid_sin(float x) { return SM_INSTRUCTION(sin, sin)(x); }
SM_INLINE float grid_cos(float x) { return SM_INSTRUCTION(cos, cos)(x); }
// exp(x) = 2^n 2^f with f within a half, so that the error does not grow with x.
SM_INLINE float grid_exp(float x) {
  const float n = __builtin_rintf(x * 1.44269504088896341f);
  float f = __builtin_fmaf(x, 1.44269502162933349609375f, -n);
  f = __builtin_fmaf(x, 1.92596299112661746887e-8f, f);
  const float result = grid_exp2(f) * grid_exp2(n - 1.0f) * 2.0f;
  return x < -104.0f ? 0.0f : x > 88.8f ? __builtin_inff() : result;
}
SM_INLINE float grid_log(float x) { return grid_log2(x) * 0.693147180559945309f; }
SM_INLINE float grid_log10(float x) { return grid_log2(x) * 0.301029995663981195f; }
SM_INLINE float grid_tan(float x) { return grid_sin(x) / grid_cos(x); }
SM_INLINE float grid_tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float t = 1.0f - 2.0f / (grid_exp(2.0f * a) + 1.0f);
  return __builtin_copysignf(a < 0.01f ? a - a * a * a * (1.0f / 3.0f) : t, x);
}
SM_INLINE float grid_sinh(float x) { return 0.5f * (grid_exp(x) - grid_exp(-x)); }
SM_INLINE float grid_cosh(float x) { return 0.5f * (grid_exp(x) + grid_exp(-x)); }
SM_INLINE float grid_pow(float x, float y) { return grid_exp2(y * grid_log2(x)); }
SM_INLINE float grid_fmod(float x, float y) { return x - y * __builtin_truncf(x / y); }
SM_INLINE float grid_ldexp(float x, int n) {
  const int half = n / 2;
  return x * grid_exp2((float)half) * grid_exp2((float)(n - half));
}
float grid_asin(float);
float grid_acos(float);
float grid_atan(float);
float grid_asinh(float);
float grid_acosh(float);
float grid_atanh(float);
float grid_atan2(float, float);

}  // namespace sm
