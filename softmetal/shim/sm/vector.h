// vec<T, N>: a class rather than clang's own vector types, which refuse float4(a, b, c, d) in C++ and reinterpret bits
// where MSL converts values. Components are plain members; swizzles of two and more are properties, which read and
// write by value.
#pragma once

#include "sm/types.h"

namespace metal {

template <class T, int N>
struct vec;

template <class T>
inline constexpr int components = 0;
template <class T, int N>
inline constexpr int components<vec<T, N>> = N;
template <class T>
inline constexpr int width = components<T> ? components<T> : 1;

template <class T>
struct native_element {
  using type = T;
};
template <>
struct native_element<bool> {
  using type = uchar;
};
// What clang computes with. An element of bool is a byte there.
template <class T, int N>
using native = typename native_element<T>::type __attribute__((ext_vector_type(N)));

#include "swizzles.h"

// Clang's generic address space, in which the lint sees objects, does not include the constant one.
#ifdef SM_LINT
#define SM_FROM_CONSTANT(type)  \
  type(const type&) = default;  \
  type(const __constant type&); \
  type& operator=(const type&) = default;
#else
#define SM_FROM_CONSTANT(type)
#endif

// A copy of two or four elements is one access of memory on a GPU, which clang does not see in a copy by element.
#ifdef SM_GRID
#define SM_WHOLE_COPY(N)                               \
  SM_INLINE constexpr vec(const vec& o) {              \
    if (__builtin_is_constant_evaluated() || N == 3) { \
      for (int i = 0; i < N; ++i) d[i] = o.d[i];       \
    } else {                                           \
      *(native<T, N>*)d = *(const native<T, N>*)o.d;   \
    }                                                  \
  }                                                    \
  SM_INLINE constexpr vec& operator=(const vec& o) {   \
    if (__builtin_is_constant_evaluated() || N == 3) { \
      for (int i = 0; i < N; ++i) d[i] = o.d[i];       \
    } else {                                           \
      *(native<T, N>*)d = *(const native<T, N>*)o.d;   \
    }                                                  \
    return *this;                                      \
  }
#else
#define SM_WHOLE_COPY(N)
#endif

#define SM_VEC_MEMBERS(N)                                                                     \
  vec() = default;                                                                            \
  SM_FROM_CONSTANT(vec)                                                                       \
  SM_WHOLE_COPY(N)                                                                            \
  SM_INLINE constexpr vec(T s) {                                                              \
    for (int i = 0; i < N; ++i) d[i] = s;                                                     \
  }                                                                                           \
  template <class U, class = enable_if_t<!is_same_v<U, T>>>                                   \
  SM_INLINE constexpr explicit vec(vec<U, N> o) {                                             \
    for (int i = 0; i < N; ++i) d[i] = (T)o.d[i];                                             \
  }                                                                                           \
  template <class A, class B, class... R>                                                     \
  SM_INLINE constexpr vec(A first, B second, R... rest) {                                     \
    static_assert(((width<A> + width<B>)+... + width<R>) == N, "wrong number of components"); \
    int at = 0;                                                                               \
    take(at, first), take(at, second), (take(at, rest), ...);                                 \
  }                                                                                           \
  template <class U>                                                                          \
  SM_INLINE constexpr void take(int& at, U u) {                                               \
    if constexpr (components<U> > 0) {                                                        \
      for (int i = 0; i < components<U>; ++i) d[at++] = (T)u.d[i];                            \
    } else {                                                                                  \
      d[at++] = (T)u;                                                                         \
    }                                                                                         \
  }                                                                                           \
  SM_INLINE constexpr T& operator[](uint i) { return d[i]; }                                  \
  SM_INLINE constexpr const T& operator[](uint i) const { return d[i]; }                      \
  SM_INLINE native<T, N> to_native() const {                                                  \
    native<T, N> v;                                                                           \
    __builtin_memcpy(&v, d, sizeof(T) * N);                                                   \
    return v;                                                                                 \
  }                                                                                           \
  SM_INLINE static vec from_native(native<T, N> v) {                                          \
    vec r;                                                                                    \
    __builtin_memcpy(r.d, &v, sizeof(T) * N);                                                 \
    return r;                                                                                 \
  }

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  union {
    T d[2];
    struct {
      T x, y;
    };
    struct {
      T r, g;
    };
  };
  SM_VEC_MEMBERS(2)
  SM_SWIZZLES_2
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  union {
    T d[3];
    struct {
      T x, y, z;
    };
    struct {
      T r, g, b;
    };
  };
  SM_VEC_MEMBERS(3)
  SM_SWIZZLES_3
};
template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  union {
    T d[4];
    struct {
      T x, y, z, w;
    };
    struct {
      T r, g, b, a;
    };
  };
  SM_VEC_MEMBERS(4)
  SM_SWIZZLES_4
};

#define SM_VT               \
  template <class T, int N> \
  SM_INLINE
#define SM_VEC_OPERATOR(op)                                                                    \
  SM_VT vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {                                      \
    return vec<T, N>::from_native(a.to_native() op b.to_native());                             \
  }                                                                                            \
  SM_VT vec<T, N> operator op(vec<T, N> a, type_identity_t<T> b) { return a op vec<T, N>(b); } \
  SM_VT vec<T, N> operator op(type_identity_t<T> a, vec<T, N> b) { return vec<T, N>(a) op b; } \
  SM_VT vec<T, N>& operator op##=(vec<T, N>& a, type_identity_t<vec<T, N>> b) { return a = a op b; }
SM_VEC_OPERATOR(+)
SM_VEC_OPERATOR(-)
SM_VEC_OPERATOR(*)
SM_VEC_OPERATOR(/)
SM_VEC_OPERATOR(%)
SM_VEC_OPERATOR(&)
SM_VEC_OPERATOR(|)
SM_VEC_OPERATOR(^) SM_VEC_OPERATOR(<<) SM_VEC_OPERATOR(>>)
#define SM_VEC_COMPARE(op)                                                                        \
  SM_VT vec<bool, N> operator op(vec<T, N> a, vec<T, N> b) {                                      \
    vec<bool, N> r;                                                                               \
    for (int i = 0; i < N; ++i) r.d[i] = a.d[i] op b.d[i];                                        \
    return r;                                                                                     \
  }                                                                                               \
  SM_VT vec<bool, N> operator op(vec<T, N> a, type_identity_t<T> b) { return a op vec<T, N>(b); } \
  SM_VT vec<bool, N> operator op(type_identity_t<T> a, vec<T, N> b) { return vec<T, N>(a) op b; }
    SM_VEC_COMPARE(<) SM_VEC_COMPARE(>) SM_VEC_COMPARE(<=) SM_VEC_COMPARE(>=) SM_VEC_COMPARE(==) SM_VEC_COMPARE(!=)
        SM_VEC_COMPARE(&&) SM_VEC_COMPARE(||) SM_VT vec<T, N>
        operator+(vec<T, N> a) {
  return a;
}
SM_VT vec<T, N> operator-(vec<T, N> a) { return vec<T, N>::from_native(-a.to_native()); }
SM_VT vec<T, N> operator~(vec<T, N> a) { return vec<T, N>::from_native(~a.to_native()); }
template <int N>
SM_INLINE vec<bool, N> operator!(vec<bool, N> a) {
  for (int i = 0; i < N; ++i) a.d[i] = !a.d[i];
  return a;
}
SM_VT vec<T, N>& operator++(vec<T, N>& a) { return a = a + vec<T, N>((T)1); }
SM_VT vec<T, N>& operator--(vec<T, N>& a) { return a = a - vec<T, N>((T)1); }

SM_INLINE bool any(bool a) { return a; }
SM_INLINE bool all(bool a) { return a; }
template <int N>
SM_INLINE bool any(vec<bool, N> a) {
  bool r = false;
  for (int i = 0; i < N; ++i) r |= a.d[i];
  return r;
}
template <int N>
SM_INLINE bool all(vec<bool, N> a) {
  bool r = true;
  for (int i = 0; i < N; ++i) r &= a.d[i];
  return r;
}

// As many components without padding or alignment; converts to and from vec.
template <class T, int N>
struct packed_vec;
#define SM_PACKED_MEMBERS(N)                                                          \
  packed_vec() = default;                                                             \
  SM_FROM_CONSTANT(packed_vec)                                                        \
  SM_INLINE packed_vec(vec<T, N> v) {                                                 \
    for (int i = 0; i < N; ++i) d[i] = v.d[i];                                        \
  }                                                                                   \
  template <class A, class B, class... R>                                             \
  SM_INLINE packed_vec(A a, B b, R... rest) : packed_vec(vec<T, N>(a, b, rest...)) {} \
  SM_INLINE operator vec<T, N>() const {                                              \
    vec<T, N> v;                                                                      \
    for (int i = 0; i < N; ++i) v.d[i] = d[i];                                        \
    return v;                                                                         \
  }                                                                                   \
  SM_INLINE T& operator[](uint i) { return d[i]; }                                    \
  SM_INLINE const T& operator[](uint i) const { return d[i]; }
template <class T>
struct packed_vec<T, 2> {
  union {
    T d[2];
    struct {
      T x, y;
    };
  };
  SM_PACKED_MEMBERS(2)
};
template <class T>
struct packed_vec<T, 3> {
  union {
    T d[3];
    struct {
      T x, y, z;
    };
  };
  SM_PACKED_MEMBERS(3)
};
template <class T>
struct packed_vec<T, 4> {
  union {
    T d[4];
    struct {
      T x, y, z, w;
    };
  };
  SM_PACKED_MEMBERS(4)
};

#define SM_VEC_NAMES(T)                   \
  typedef vec<T, 2> T##2;                 \
  typedef vec<T, 3> T##3;                 \
  typedef vec<T, 4> T##4;                 \
  typedef packed_vec<T, 2> packed_##T##2; \
  typedef packed_vec<T, 3> packed_##T##3; \
  typedef packed_vec<T, 4> packed_##T##4;
SM_VEC_NAMES(bool)
SM_VEC_NAMES(char)
SM_VEC_NAMES(uchar)
SM_VEC_NAMES(short)
SM_VEC_NAMES(ushort)
SM_VEC_NAMES(int)
SM_VEC_NAMES(uint) SM_VEC_NAMES(long) SM_VEC_NAMES(ulong) SM_VEC_NAMES(half) SM_VEC_NAMES(float) SM_VEC_NAMES(bfloat)

}  // namespace metal
