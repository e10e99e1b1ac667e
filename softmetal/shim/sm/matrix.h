// simdgroup_matrix<T, 8, 8>. Two ways to hold one, with the same results bit for bit:
// - spread: two elements a lane, as on a device. Which two is no kernel's business, so the layout here is unlike
// Apple's:
//   lane l holds elements p and p + 32 of the row-major matrix, p a permutation of l.
// - SM_MATRIX_WHOLE: lane 0 holds all 64 and computes alone. Fast, but has no thread_elements().
#pragma once

#include "sm/math.h"
#include "sm/runtime.h"

namespace sm {

SM_INLINE uint matrix_element(uint lane, uint i) { return ((lane * 11 + 5) & 31) + 32 * i; }

// D = A * B + C, the products of a row added in order of k.
#pragma clang attribute push(__attribute__((no_sanitize("thread", "kernel-address"))), apply_to = function)
template <class D, class A, class B, class C>
SM_INLINE void multiply(D* d, const A* a, const B* b, const C* c) {
  using Row = metal::native<float, 8>;
  Row rows[8];
  for (int k = 0; k < 8; ++k) {
    for (int j = 0; j < 8; ++j) rows[k][j] = (float)b[k * 8 + j];
  }
  for (int i = 0; i < 8; ++i) {
    Row sum;
    for (int j = 0; j < 8; ++j) sum[j] = (float)c[i * 8 + j];
    for (int k = 0; k < 8; ++k) sum = __builtin_elementwise_fma((Row)(float)a[i * 8 + k], rows[k], sum);
    for (int j = 0; j < 8; ++j) d[i * 8 + j] = (D)sum[j];
  }
}
#pragma clang attribute pop

}  // namespace sm

namespace metal {

#ifdef SM_MATRIX_WHOLE

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 by 8");
  T e[64];
  simdgroup_matrix() = default;
  SM_INLINE explicit simdgroup_matrix(T diagonal) {
    for (int i = 0; i < 64; ++i) e[i] = i % 9 ? (T)0.0f : diagonal;
  }
};
template <class T, int Columns, int Rows>
SM_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(type_identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  for (int i = 0; i < 64; ++i) m.e[i] = value;
  return m;
}
template <class T>
SM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8, ulong2 origin = ulong2(0),
                              bool transpose = false) {
  if (sm::self()->lane) return;
  from += origin.y * stride + origin.x;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) m.e[i * 8 + j] = transpose ? from[j * stride + i] : from[i * stride + j];
  }
}
template <class T>
SM_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* to, ulong stride = 8, ulong2 origin = ulong2(0),
                               bool transpose = false) {
  if (sm::self()->lane) return;
  to += origin.y * stride + origin.x;
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) (transpose ? to[j * stride + i] : to[i * stride + j]) = m.e[i * 8 + j];
  }
}
template <class D, class A, class B, class C>
SM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                             const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c) {
  if (sm::self()->lane == 0) sm::multiply(d.e, a.e, b.e, c.e);
}

// What the macro SOFTMETAL_MATRIX_ADD promises: element by element d += a, and d = d f + a g where g is not negative.
template <class T>
SM_INLINE void softmetal_add(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a) {
  if (sm::self()->lane) return;
  for (int i = 0; i < 64; ++i) d.e[i] += a.e[i];
}
SM_INLINE void softmetal_fold(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<float, 8, 8>& f,
                              const simdgroup_matrix<float, 8, 8>& a, const simdgroup_matrix<float, 8, 8>& g) {
  if (sm::self()->lane) return;
  for (int i = 0; i < 64; ++i) d.e[i] = g.e[i] < 0 ? d.e[i] : __builtin_fmaf(d.e[i], f.e[i], a.e[i] * g.e[i]);
}

#else

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 by 8");
  vec<T, 2> e;
  simdgroup_matrix() = default;
  SM_INLINE explicit simdgroup_matrix(T diagonal) {
    for (uint i = 0; i < 2; ++i) e.d[i] = sm::matrix_element(sm::self()->lane, i) % 9 ? (T)0.0f : diagonal;
  }
  SM_INLINE vec<T, 2>& thread_elements() { return e; }
  SM_INLINE const vec<T, 2>& thread_elements() const { return e; }
};
template <class T, int Columns, int Rows>
SM_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(type_identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.e = vec<T, 2>(value);
  return m;
}
template <class T>
SM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8, ulong2 origin = ulong2(0),
                              bool transpose = false) {
  from += origin.y * stride + origin.x;
  for (uint i = 0; i < 2; ++i) {
    ulong at = sm::matrix_element(sm::self()->lane, i), row = at / 8, column = at % 8;
    m.e.d[i] = transpose ? from[column * stride + row] : from[row * stride + column];
  }
}
template <class T>
SM_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong stride = 8, ulong2 origin = ulong2(0),
                               bool transpose = false) {
  to += origin.y * stride + origin.x;
  for (uint i = 0; i < 2; ++i) {
    ulong at = sm::matrix_element(sm::self()->lane, i), row = at / 8, column = at % 8;
    (transpose ? to[column * stride + row] : to[row * stride + column]) = m.e.d[i];
  }
}
template <class T>
SM_INLINE void softmetal_add(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a) {
  for (int i = 0; i < 2; ++i) d.e.d[i] += a.e.d[i];
}
SM_INLINE void softmetal_fold(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<float, 8, 8>& f,
                              const simdgroup_matrix<float, 8, 8>& a, const simdgroup_matrix<float, 8, 8>& g) {
  for (int i = 0; i < 2; ++i)
    d.e.d[i] = g.e.d[i] < 0 ? d.e.d[i] : __builtin_fmaf(d.e.d[i], f.e.d[i], a.e.d[i] * g.e.d[i]);
}
#pragma clang attribute push(__attribute__((no_sanitize("thread", "kernel-address"))), apply_to = function)
template <class D, class A, class B, class C>
SM_COLLECTIVE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                 simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c,
                                                 SM_SITE_PARAMETERS) {
  struct Record {
    vec<A, 2> a;
    vec<B, 2> b;
    vec<C, 2> c;
    vec<D, 2> d;
  } record{a.e, b.e, c.e, {}};
  sm::softmetal_runtime->collective(
      &record,
      [](void** args, uint mask) {
        A a[64];
        B b[64];
        C c[64];
        D d[64];
        if (mask != ~0u) __builtin_trap();
        for (uint lane = 0; lane < 32; ++lane) {
          auto& r = *(Record*)args[lane];
          for (uint i = 0; i < 2; ++i) {
            uint at = sm::matrix_element(lane, i);
            a[at] = r.a.d[i], b[at] = r.b.d[i], c[at] = r.c.d[i];
          }
        }
        sm::multiply(d, a, b, c);
        for (uint lane = 0; lane < 32; ++lane) {
          for (uint i = 0; i < 2; ++i) ((Record*)args[lane])->d.d[i] = d[sm::matrix_element(lane, i)];
        }
      },
      SM_SITE);
  d.e = record.d;
}
#pragma clang attribute pop

#endif

typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class D, class A, class B>
SM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                  simdgroup_matrix<B, 8, 8> b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0.0f));
}

}  // namespace metal
