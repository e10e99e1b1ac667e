// Elementary functions from the instructions there are. Good to a few units in the last place; sin and cos to an
// absolute error of 2^-20 within a few turns. Functions that are not here fail when the kernel is linked, by name.
#pragma once

#include "sm/types.h"

namespace sm {

SM_INLINE float cuda_exp2(float x) { return __nvvm_ex2_approx_f(x); }
// exp(x) = 2^n 2^f with f within a half, so that the error does not grow with x.
SM_INLINE float cuda_exp(float x) {
  const float n = __builtin_rintf(x * 1.44269504088896341f);
  float f = __builtin_fmaf(x, 1.44269502162933349609375f, -n);
  f = __builtin_fmaf(x, 1.92596299112661746887e-8f, f);
  const float result = cuda_exp2(f) * cuda_exp2(n - 1.0f) * 2.0f;
  return x < -104.0f ? 0.0f : x > 88.8f ? __builtin_inff() : result;
}
SM_INLINE float cuda_log2(float x) { return __nvvm_lg2_approx_f(x); }
SM_INLINE float cuda_log(float x) { return cuda_log2(x) * 0.693147180559945309f; }
SM_INLINE float cuda_log10(float x) { return cuda_log2(x) * 0.301029995663981195f; }
SM_INLINE float cuda_sin(float x) { return __nvvm_sin_approx_f(x); }
SM_INLINE float cuda_cos(float x) { return __nvvm_cos_approx_f(x); }
SM_INLINE float cuda_tan(float x) { return cuda_sin(x) / cuda_cos(x); }
SM_INLINE float cuda_tanh(float x) {
  const float a = __builtin_fabsf(x);
  const float t = 1.0f - 2.0f / (cuda_exp(2.0f * a) + 1.0f);
  return __builtin_copysignf(a < 0.01f ? a - a * a * a * (1.0f / 3.0f) : t, x);
}
SM_INLINE float cuda_sinh(float x) { return 0.5f * (cuda_exp(x) - cuda_exp(-x)); }
SM_INLINE float cuda_cosh(float x) { return 0.5f * (cuda_exp(x) + cuda_exp(-x)); }
SM_INLINE float cuda_pow(float x, float y) { return cuda_exp2(y * cuda_log2(x)); }
SM_INLINE float cuda_fmod(float x, float y) { return x - y * __builtin_truncf(x / y); }
SM_INLINE float cuda_ldexp(float x, int n) {
  const int half = n / 2;
  return x * cuda_exp2((float)half) * cuda_exp2((float)(n - half));
}
float cuda_asin(float);
float cuda_acos(float);
float cuda_atan(float);
float cuda_asinh(float);
float cuda_acosh(float);
float cuda_atanh(float);
float cuda_atan2(float, float);

}  // namespace sm
