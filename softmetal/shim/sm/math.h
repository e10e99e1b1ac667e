#pragma once

#include "sm/vector.h"

// Where the elementary functions come from.
#ifdef SM_GRID
#include "sm/grid_math.h"
#define SM_LIBM(name) ::sm::grid_##name
#else
#define SM_LIBM(name) __builtin_##name##f
#endif

namespace metal {

// The overloads are exact (float, half, bfloat and their vectors), so that a call with mixed types is ambiguous here as
// it is with Apple's compiler. Half and bfloat compute in float and round once.
#define SM_MATH1(name, expression)                     \
  SM_INLINE float name(float x) { return expression; } \
  SM_INLINE half name(half h) {                        \
    float x = (float)h;                                \
    return (half)(expression);                         \
  }                                                    \
  SM_INLINE bfloat name(bfloat h) {                    \
    float x = (float)h;                                \
    return (bfloat)(expression);                       \
  }                                                    \
  SM_VT vec<T, N> name(vec<T, N> v) {                  \
    for (int i = 0; i < N; ++i) v.d[i] = name(v.d[i]); \
    return v;                                          \
  }
#define SM_MATH2(name, expression)                              \
  SM_INLINE float name(float x, float y) { return expression; } \
  SM_INLINE half name(half a, half b) {                         \
    float x = (float)a, y = (float)b;                           \
    return (half)(expression);                                  \
  }                                                             \
  SM_INLINE bfloat name(bfloat a, bfloat b) {                   \
    float x = (float)a, y = (float)b;                           \
    return (bfloat)(expression);                                \
  }                                                             \
  SM_VT vec<T, N> name(vec<T, N> a, vec<T, N> b) {              \
    for (int i = 0; i < N; ++i) a.d[i] = name(a.d[i], b.d[i]);  \
    return a;                                                   \
  }                                                             \
  SM_VT vec<T, N> name(vec<T, N> a, type_identity_t<T> b) { return name(a, vec<T, N>(b)); }
#define SM_MATH3(name, expression)                                                \
  SM_INLINE float name(float x, float y, float z) { return expression; }          \
  SM_INLINE half name(half a, half b, half c) {                                   \
    float x = (float)a, y = (float)b, z = (float)c;                               \
    return (half)(expression);                                                    \
  }                                                                               \
  SM_INLINE bfloat name(bfloat a, bfloat b, bfloat c) {                           \
    float x = (float)a, y = (float)b, z = (float)c;                               \
    return (bfloat)(expression);                                                  \
  }                                                                               \
  SM_VT vec<T, N> name(vec<T, N> a, vec<T, N> b, vec<T, N> c) {                   \
    for (int i = 0; i < N; ++i) a.d[i] = name(a.d[i], b.d[i], c.d[i]);            \
    return a;                                                                     \
  }                                                                               \
  SM_VT vec<T, N> name(vec<T, N> a, type_identity_t<T> b, type_identity_t<T> c) { \
    return name(a, vec<T, N>(b), vec<T, N>(c));                                   \
  }

// precise:: and fast:: name the same functions: Apple's fast ones differ in their last digits, which cannot be had
// here.
#define SM_ELEMENTARY                                                       \
  SM_MATH1(exp, SM_LIBM(exp)(x))                                            \
  SM_MATH1(exp2, SM_LIBM(exp2)(x))                                          \
  SM_MATH1(exp10, SM_LIBM(exp2)(x * 3.32192809488736235f))                  \
  SM_MATH1(log, SM_LIBM(log)(x))                                            \
  SM_MATH1(log2, SM_LIBM(log2)(x))                                          \
  SM_MATH1(log10, SM_LIBM(log10)(x))                                        \
  SM_MATH1(sin, SM_LIBM(sin)(x))                                            \
  SM_MATH1(cos, SM_LIBM(cos)(x))                                            \
  SM_MATH1(tan, SM_LIBM(tan)(x))                                            \
  SM_MATH1(asin, SM_LIBM(asin)(x))                                          \
  SM_MATH1(acos, SM_LIBM(acos)(x))                                          \
  SM_MATH1(atan, SM_LIBM(atan)(x))                                          \
  SM_MATH1(sinh, SM_LIBM(sinh)(x))                                          \
  SM_MATH1(cosh, SM_LIBM(cosh)(x))                                          \
  SM_MATH1(tanh, SM_LIBM(tanh)(x))                                          \
  SM_MATH1(asinh, SM_LIBM(asinh)(x))                                        \
  SM_MATH1(acosh, SM_LIBM(acosh)(x))                                        \
  SM_MATH1(atanh, SM_LIBM(atanh)(x))                                        \
  SM_MATH1(sqrt, __builtin_sqrtf(x))                                        \
  SM_MATH1(rsqrt, 1.0f / __builtin_sqrtf(x))                                \
  SM_MATH1(floor, __builtin_floorf(x))                                      \
  SM_MATH1(ceil, __builtin_ceilf(x))                                        \
  SM_MATH1(trunc, __builtin_truncf(x))                                      \
  SM_MATH1(round, __builtin_roundf(x))                                      \
  SM_MATH1(rint, __builtin_rintf(x))                                        \
  SM_MATH1(fabs, __builtin_fabsf(x))                                        \
  SM_MATH1(abs, __builtin_fabsf(x))                                         \
  SM_MATH1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f)) \
  SM_MATH1(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f)          \
  SM_MATH1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))       \
  SM_MATH2(pow, SM_LIBM(pow)(x, y))                                         \
  SM_MATH2(powr, SM_LIBM(pow)(x, y))                                        \
  SM_MATH2(fmod, SM_LIBM(fmod)(x, y))                                       \
  SM_MATH2(atan2, SM_LIBM(atan2)(x, y))                                     \
  SM_MATH2(copysign, __builtin_copysignf(x, y))                             \
  SM_MATH2(fdim, __builtin_fdimf(x, y))                                     \
  SM_MATH2(fmin, __builtin_fminf(x, y))                                     \
  SM_MATH2(fmax, __builtin_fmaxf(x, y))                                     \
  SM_MATH2(min, __builtin_fminf(x, y))                                      \
  SM_MATH2(max, __builtin_fmaxf(x, y))                                      \
  SM_MATH2(step, y < x ? 0.0f : 1.0f)                                       \
  SM_MATH2(divide, x / y)                                                   \
  SM_MATH3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))                \
  SM_MATH3(mix, x + (y - x) * z)                                            \
  SM_MATH3(fma, __builtin_fmaf(x, y, z))                                    \
  SM_MATH3(max3, __builtin_fmaxf(x, __builtin_fmaxf(y, z))) SM_MATH3(min3, __builtin_fminf(x, __builtin_fminf(y, z)))
SM_ELEMENTARY
#ifdef SM_GRID
// Two halves are one instruction on NVIDIA GPUs; none of them becomes a float on the way.
template <int N>
SM_INLINE vec<half, N> fma(vec<half, N> a, vec<half, N> b, vec<half, N> c) {
  return vec<half, N>::from_native(__builtin_elementwise_fma(a.to_native(), b.to_native(), c.to_native()));
}
#endif
namespace precise {
SM_ELEMENTARY
}
namespace fast {
SM_ELEMENTARY
}

SM_INLINE float ldexp(float x, int n) { return SM_LIBM(ldexp)(x, n); }
SM_INLINE half ldexp(half x, int n) { return (half)SM_LIBM(ldexp)((float)x, n); }
SM_INLINE float smoothstep(float low, float high, float x) {
  float t = clamp((x - low) / (high - low), 0.0f, 1.0f);
  return t * t * (3.0f - 2.0f * t);
}

#define SM_CLASSIFY(name, expression)                  \
  SM_INLINE bool name(float x) { return expression; }  \
  SM_INLINE bool name(half h) {                        \
    float x = (float)h;                                \
    return expression;                                 \
  }                                                    \
  SM_INLINE bool name(bfloat h) {                      \
    float x = (float)h;                                \
    return expression;                                 \
  }                                                    \
  SM_VT vec<bool, N> name(vec<T, N> v) {               \
    vec<bool, N> r;                                    \
    for (int i = 0; i < N; ++i) r.d[i] = name(v.d[i]); \
    return r;                                          \
  }
SM_CLASSIFY(isnan, __builtin_isnan(x))
SM_CLASSIFY(isinf, __builtin_isinf(x))
SM_CLASSIFY(isfinite, __builtin_isfinite(x))
SM_CLASSIFY(isnormal, __builtin_isnormal(x))
SM_CLASSIFY(signbit, __builtin_signbit(x) != 0)

template <class T, class = enable_if_t<components<T> == 0>>
SM_INLINE T select(T a, T b, bool c) {
  return c ? b : a;
}
SM_VT vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  for (int i = 0; i < N; ++i) a.d[i] = c.d[i] ? b.d[i] : a.d[i];
  return a;
}
SM_VT vec<T, N> select(vec<T, N> a, vec<T, N> b, bool c) { return c ? b : a; }

SM_VT T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a.d[0] * b.d[0];
  for (int i = 1; i < N; ++i) sum += a.d[i] * b.d[i];
  return sum;
}
SM_VT T length_squared(vec<T, N> a) { return dot(a, a); }
SM_VT T length(vec<T, N> a) { return sqrt(dot(a, a)); }
SM_VT T distance(vec<T, N> a, vec<T, N> b) { return length(a - b); }
SM_VT vec<T, N> normalize(vec<T, N> a) { return a * rsqrt(dot(a, a)); }
template <class T>
SM_INLINE vec<T, 3> cross(vec<T, 3> a, vec<T, 3> b) {
  return vec<T, 3>(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

}  // namespace metal

#ifndef SM_GRID
// clang asks for this where the processor has no instruction for it; libgcc 12 lacks it. Rounds to nearest, ties to
// even.
extern "C" __attribute__((visibility("hidden"), weak, used)) bfloat __truncsfbf2(float x) {
  uint bits = metal::as_type<uint>(x);
  ushort high = (bits & 0x7fffffffu) > 0x7f800000u ? (ushort)(bits >> 16 | 0x40)
                                                   : (ushort)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
  return metal::as_type<bfloat>(high);
}
#endif
