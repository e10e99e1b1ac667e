// simdgroup_matrix<T, 8, 8>: a lane holds two neighbours of a row. A product is the GPU's one instruction, which Mesa
// knows by an edit of ours (softmetal/agx/edit_mesa.py); it takes halves or floats, so bfloats go as floats.
#pragma once

#include "sm/agx/simdgroup.h"

namespace sm {

typedef float NativeFloat2 __attribute__((ext_vector_type(2)));
typedef half NativeHalf2 __attribute__((ext_vector_type(2)));

// Where a lane's two elements are, as MLX and others found it by looking.
SM_INLINE uint matrix_row() { return (lane() / 4 & 4) + lane() / 2 % 4; }
SM_INLINE uint matrix_column() { return (lane() / 4 & 2) * 2 + lane() % 2 * 2; }

}  // namespace sm

// Functions of these names become Mesa's intrinsic of that name; what follows two underscores tells them apart.
extern "C" {
__attribute__((convergent, const)) sm::NativeFloat2 nir_simd_matrix_agx__f(sm::NativeFloat2 a, sm::NativeFloat2 b,
                                                                           sm::NativeFloat2 c);
__attribute__((convergent, const)) sm::NativeFloat2 nir_simd_matrix_agx__h(sm::NativeHalf2 a, sm::NativeHalf2 b,
                                                                           sm::NativeFloat2 c);
}

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 by 8");
  vec<T, 2> e;
  simdgroup_matrix() = default;
  SM_INLINE explicit simdgroup_matrix(T diagonal) {
    const uint row = sm::matrix_row(), column = sm::matrix_column();
    e.d[0] = row == column ? diagonal : (T)0.0f;
    e.d[1] = row == column + 1 ? diagonal : (T)0.0f;
  }
  SM_INLINE vec<T, 2>& thread_elements() { return e; }
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows>
SM_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(type_identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.e = vec<T, 2>(value);
  return m;
}
template <class T>
SM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8, ulong2 origin = ulong2(0),
                              bool transpose = false) {
  const uint row = sm::matrix_row(), column = sm::matrix_column();
  if (transpose) {
    const T* at = from + (origin.y + column) * stride + origin.x + row;
    m.e.d[0] = at[0];
    m.e.d[1] = at[stride];
  } else {
    m.e = *(const vec<T, 2>*)(from + (origin.y + row) * stride + origin.x + column);
  }
}
template <class T>
SM_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* to, ulong stride = 8, ulong2 origin = ulong2(0),
                               bool transpose = false) {
  const uint row = sm::matrix_row(), column = sm::matrix_column();
  if (transpose) {
    T* at = to + (origin.y + column) * stride + origin.x + row;
    at[0] = m.e.d[0];
    at[stride] = m.e.d[1];
  } else {
    *(vec<T, 2>*)(to + (origin.y + row) * stride + origin.x + column) = m.e;
  }
}

// d += a
template <class T>
SM_INLINE void softmetal_add(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a) {
  d.e.d[0] += a.e.d[0];
  d.e.d[1] += a.e.d[1];
}
// d = d f + a g where g is not negative
SM_INLINE void softmetal_fold(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<float, 8, 8>& f,
                              const simdgroup_matrix<float, 8, 8>& a, const simdgroup_matrix<float, 8, 8>& g) {
  for (int i = 0; i < 2; ++i)
    d.e.d[i] = g.e.d[i] < 0 ? d.e.d[i] : __builtin_fmaf(d.e.d[i], f.e.d[i], a.e.d[i] * g.e.d[i]);
}

template <class D, class A, class B, class C>
SM_COLLECTIVE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                                 const simdgroup_matrix<B, 8, 8>& b,
                                                 const simdgroup_matrix<C, 8, 8>& c) {
  const sm::NativeFloat2 sums = {(float)c.e.d[0], (float)c.e.d[1]};
  sm::NativeFloat2 out;
  if constexpr (is_same_v<A, half> && is_same_v<B, half>) {
    out = nir_simd_matrix_agx__h(a.e.to_native(), b.e.to_native(), sums);
  } else {
    const sm::NativeFloat2 x = {(float)a.e.d[0], (float)a.e.d[1]}, y = {(float)b.e.d[0], (float)b.e.d[1]};
    out = nir_simd_matrix_agx__f(x, y, sums);
  }
  d.e = vec<D, 2>((D)out.x, (D)out.y);
}
template <class D, class A, class B>
SM_COLLECTIVE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                      const simdgroup_matrix<B, 8, 8>& b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0.0f));
}

}  // namespace metal
