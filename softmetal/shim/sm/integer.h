#pragma once

#include "sm/vector.h"

namespace metal {

#define SM_INTEGER(T)                                                                                                  \
  SM_INLINE T min(T a, T b) { return b < a ? b : a; }                                                                  \
  SM_INLINE T max(T a, T b) { return a < b ? b : a; }                                                                  \
  SM_INLINE T min3(T a, T b, T c) { return min(a, min(b, c)); }                                                        \
  SM_INLINE T max3(T a, T b, T c) { return max(a, max(b, c)); }                                                        \
  SM_INLINE T clamp(T x, T low, T high) { return min(max(x, low), high); }                                             \
  SM_INLINE T absdiff(T a, T b) { return a < b ? b - a : a - b; }                                                      \
  SM_INLINE T popcount(T x) { return (T)__builtin_popcountl((ulong)(make_unsigned_t<T>)x); }                           \
  SM_INLINE T clz(T x) {                                                                                               \
    ulong u = (make_unsigned_t<T>)x;                                                                                   \
    return (T)(u ? __builtin_clzl(u) - (64 - (int)sizeof(T) * 8) : (int)sizeof(T) * 8);                                \
  }                                                                                                                    \
  SM_INLINE T ctz(T x) {                                                                                               \
    ulong u = (make_unsigned_t<T>)x;                                                                                   \
    return (T)(u ? __builtin_ctzl(u) : (int)sizeof(T) * 8);                                                            \
  }                                                                                                                    \
  SM_INLINE T reverse_bits(T x) { return (T)(__builtin_bitreverse64((make_unsigned_t<T>)x) >> (64 - sizeof(T) * 8)); } \
  SM_INLINE T rotate(T x, T n) {                                                                                       \
    const uint bits = sizeof(T) * 8, k = (uint)n & (bits - 1);                                                         \
    auto u = (make_unsigned_t<T>)x;                                                                                    \
    return k ? (T)(u << k | u >> (bits - k)) : x;                                                                      \
  }                                                                                                                    \
  SM_INLINE T mulhi(T a, T b) {                                                                                        \
    using Wide = conditional_t<__is_signed(T), __int128, unsigned __int128>;                                           \
    return (T)(((Wide)a * (Wide)b) >> (sizeof(T) * 8));                                                                \
  }                                                                                                                    \
  SM_INLINE T madhi(T a, T b, T c) { return mulhi(a, b) + c; }                                                         \
  SM_INLINE T addsat(T a, T b) {                                                                                       \
    T r;                                                                                                               \
    return __builtin_add_overflow(a, b, &r) ? (b < 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;       \
  }                                                                                                                    \
  SM_INLINE T subsat(T a, T b) {                                                                                       \
    T r;                                                                                                               \
    return __builtin_sub_overflow(a, b, &r) ? (b > 0 ? numeric_limits<T>::min() : numeric_limits<T>::max()) : r;       \
  }                                                                                                                    \
  SM_INLINE T hadd(T a, T b) { return (T)(((__int128)a + (__int128)b) >> 1); }                                         \
  SM_INLINE T rhadd(T a, T b) { return (T)(((__int128)a + (__int128)b + 1) >> 1); }                                    \
  SM_INLINE T extract_bits(T x, uint offset, uint bits) {                                                              \
    if (!bits) return 0;                                                                                               \
    auto u = (make_unsigned_t<T>)((make_unsigned_t<T>)x << (sizeof(T) * 8 - bits - offset));                           \
    return (T)((T)u >> (sizeof(T) * 8 - bits));                                                                        \
  }                                                                                                                    \
  SM_INLINE T insert_bits(T base, T insert, uint offset, uint bits) {                                                  \
    ulong mask = (bits >= 64 ? ~0ul : (1ul << bits) - 1) << offset;                                                    \
    return (T)(((ulong)base & ~mask) | ((ulong)insert << offset & mask));                                              \
  }
SM_INTEGER(char)
SM_INTEGER(signed char)
SM_INTEGER(uchar)
SM_INTEGER(short)
SM_INTEGER(ushort) SM_INTEGER(int) SM_INTEGER(uint) SM_INTEGER(long) SM_INTEGER(ulong) SM_INLINE char abs(char x) {
  return x < 0 ? -x : x;
}
SM_INLINE short abs(short x) { return x < 0 ? -x : x; }
SM_INLINE int abs(int x) { return x < 0 ? -x : x; }
SM_INLINE long abs(long x) { return x < 0 ? -x : x; }
SM_INLINE uint abs(uint x) { return x; }
SM_INLINE int mul24(int a, int b) { return a * b; }
SM_INLINE uint mul24(uint a, uint b) { return a * b; }
SM_INLINE int mad24(int a, int b, int c) { return a * b + c; }
SM_INLINE uint mad24(uint a, uint b, uint c) { return a * b + c; }

#define SM_INTEGER_VEC(name)                           \
  SM_VT vec<T, N> name(vec<T, N> v) {                  \
    for (int i = 0; i < N; ++i) v.d[i] = name(v.d[i]); \
    return v;                                          \
  }
SM_INTEGER_VEC(popcount) SM_INTEGER_VEC(clz) SM_INTEGER_VEC(ctz) SM_INTEGER_VEC(reverse_bits)

}  // namespace metal
