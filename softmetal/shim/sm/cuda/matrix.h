// simdgroup_matrix<T, 8, 8> on the tensor cores. A lane holds elements (row, column) and (row, column + 1) with row =
// lane / 4 and column = lane % 4 * 2: what mma takes and gives. It wants its right operand the other way round, so a
// matrix remembers whether its registers hold the transpose; the compiler knows that at every use, and a transposed
// load of a right operand costs nothing.
#pragma once

#include "sm/cuda/simdgroup.h"

namespace sm {

SM_INLINE uint matrix_row() { return lane() / 4; }
SM_INLINE uint matrix_column() { return lane() % 4 * 2; }

template <class T>
SM_COLLECTIVE metal::vec<T, 2> transposed(metal::vec<T, 2> e) {
  if constexpr (sizeof(T) == 2) {
    uint r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(metal::as_type<uint>(e)));
    return metal::as_type<metal::vec<T, 2>>(r);
  } else {
    const uint row = matrix_row(), column = matrix_column();
    const ushort first = (ushort)(column * 4 + row / 2), second = (ushort)(first + 4);
    const T a0 = metal::simd_shuffle(e.d[0], first), a1 = metal::simd_shuffle(e.d[1], first);
    const T b0 = metal::simd_shuffle(e.d[0], second), b1 = metal::simd_shuffle(e.d[1], second);
    metal::vec<T, 2> out;
    out.d[0] = row % 2 ? a1 : a0;
    out.d[1] = row % 2 ? b1 : b0;
    return out;
  }
}

}  // namespace sm

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8, "simdgroup matrices are 8 by 8");
  vec<T, 2> e;
  bool is_transposed;
  simdgroup_matrix() = default;
  SM_INLINE explicit simdgroup_matrix(T diagonal) : is_transposed(false) {
    const uint row = sm::matrix_row(), column = sm::matrix_column();
    e.d[0] = row == column ? diagonal : (T)0.0f;
    e.d[1] = row == column + 1 ? diagonal : (T)0.0f;
  }
  SM_COLLECTIVE vec<T, 2>& thread_elements() {
    if (is_transposed) e = sm::transposed(e);
    is_transposed = false;
    return e;
  }
  SM_COLLECTIVE vec<T, 2> rows() const { return is_transposed ? sm::transposed(e) : e; }
  SM_COLLECTIVE vec<T, 2> columns() const { return is_transposed ? e : sm::transposed(e); }
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int Columns, int Rows>
SM_INLINE simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(type_identity_t<T> value) {
  simdgroup_matrix<T, Columns, Rows> m;
  m.e = vec<T, 2>(value);
  m.is_transposed = false;
  return m;
}
// The stride is even and the first element aligned to two: so it is in every kernel here.
template <class T>
SM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8, ulong2 origin = ulong2(0),
                              bool transpose = false) {
  m.e = *(const vec<T, 2>*)(from + (origin.y + sm::matrix_row()) * stride + origin.x + sm::matrix_column());
  m.is_transposed = transpose;
}
template <class T>
SM_COLLECTIVE void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* to, ulong stride = 8,
                                   ulong2 origin = ulong2(0), bool transpose = false) {
  if (sizeof(T) == 4 && m.is_transposed != transpose) {
    T* at = to + (origin.y + sm::matrix_column()) * stride + origin.x + sm::matrix_row();
    at[0] = m.e.d[0];
    at[stride] = m.e.d[1];
    return;
  }
  *(vec<T, 2>*)(to + (origin.y + sm::matrix_row()) * stride + origin.x + sm::matrix_column()) =
      transpose ? m.columns() : m.rows();
}

template <class D, class A, class B, class C>
SM_COLLECTIVE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                                 const simdgroup_matrix<B, 8, 8>& b,
                                                 const simdgroup_matrix<C, 8, 8>& c) {
  const vec<A, 2> left = a.rows();
  const vec<C, 2> sums = c.rows();
  float s0 = (float)sums.d[0], s1 = (float)sums.d[1];
  if constexpr (sizeof(A) == 2 && is_same_v<A, B>) {
    // The lower half of the tile of sixteen rows is nothing.
    const uint x = as_type<uint>(left), y = as_type<uint>(b.columns());
    float n0, n1;
    if constexpr (is_same_v<A, half>) {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%9};"
          : "=f"(s0), "=f"(s1), "=f"(n0), "=f"(n1)
          : "r"(x), "r"(0u), "r"(y), "f"(s0), "f"(s1), "f"(0.0f));
    } else {
      asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%9};"
          : "=f"(s0), "=f"(s1), "=f"(n0), "=f"(n1)
          : "r"(x), "r"(0u), "r"(y), "f"(s0), "f"(s1), "f"(0.0f));
    }
  } else {
    const vec<B, 2> right = b.rows();
#pragma clang loop unroll(full)
    for (uint k = 0; k < 8; ++k) {
      const float x = (float)simd_shuffle(left.d[k % 2], (ushort)((sm::lane() & ~3u) + k / 2));
      const ushort from = (ushort)(k * 4 + sm::lane() % 4);
      s0 = __builtin_fmaf(x, (float)simd_shuffle(right.d[0], from), s0);
      s1 = __builtin_fmaf(x, (float)simd_shuffle(right.d[1], from), s1);
    }
  }
  d.e = vec<D, 2>((D)s0, (D)s1);
  d.is_transposed = false;
}
template <class D, class A, class B>
SM_COLLECTIVE void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                      const simdgroup_matrix<B, 8, 8>& b) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>((D)0.0f));
}

// The 16-bit operands of softmetal_multiply_wide, in one instruction.
template <class T>
SM_COLLECTIVE void softmetal_multiply_16(simdgroup_matrix<float, 8, 8>& d0, simdgroup_matrix<float, 8, 8>& d1,
                                         const simdgroup_matrix<T, 8, 8>& a00, const simdgroup_matrix<T, 8, 8>& a01,
                                         const simdgroup_matrix<T, 8, 8>& a10, const simdgroup_matrix<T, 8, 8>& a11,
                                         const simdgroup_matrix<T, 8, 8>& b0, const simdgroup_matrix<T, 8, 8>& b1) {
  vec<float, 2> s0 = d0.rows(), s1 = d1.rows();
  const uint x0 = as_type<uint>(a00.rows()), x1 = as_type<uint>(a10.rows()), x2 = as_type<uint>(a01.rows()),
             x3 = as_type<uint>(a11.rows());
  const uint y0 = as_type<uint>(b0.columns()), y1 = as_type<uint>(b1.columns());
  if constexpr (is_same_v<T, half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s0.d[0]), "+f"(s0.d[1]), "+f"(s1.d[0]), "+f"(s1.d[1])
        : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(y0), "r"(y1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s0.d[0]), "+f"(s0.d[1]), "+f"(s1.d[0]), "+f"(s1.d[1])
        : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(y0), "r"(y1));
  }
  d0.e = s0;
  d1.e = s1;
  d0.is_transposed = d1.is_transposed = false;
}

// One row of matrices by two columns, two deep, at once, as the transpose of what it is: the tile of sixteen rows is
// full.
//   d[i] += a[0] * b[0][i] + a[1] * b[1][i]
// The sums are transposed, too.
template <class T>
SM_COLLECTIVE void softmetal_multiply_broad(simdgroup_matrix<float, 8, 8>& d0, simdgroup_matrix<float, 8, 8>& d1,
                                            const simdgroup_matrix<T, 8, 8>& a0, const simdgroup_matrix<T, 8, 8>& a1,
                                            const simdgroup_matrix<T, 8, 8>& b00, const simdgroup_matrix<T, 8, 8>& b10,
                                            const simdgroup_matrix<T, 8, 8>& b01,
                                            const simdgroup_matrix<T, 8, 8>& b11) {
  if constexpr (sizeof(T) == 4) {
    simdgroup_multiply_accumulate(d0, a0, b00, d0);
    simdgroup_multiply_accumulate(d0, a1, b10, d0);
    simdgroup_multiply_accumulate(d1, a0, b01, d1);
    simdgroup_multiply_accumulate(d1, a1, b11, d1);
    return;
  }
  vec<float, 2> s0 = d0.columns(), s1 = d1.columns();
  uint x[4], y[2];
  const vec<T, 2> parts[6] = {b00.columns(), b01.columns(), b10.columns(), b11.columns(), a0.rows(), a1.rows()};
#pragma clang loop unroll(full)
  for (uint i = 0; i < 6; ++i) __builtin_memcpy(i < 4 ? x + i : y + (i - 4), &parts[i], sizeof(T) == 2 ? 4 : 0);
  if constexpr (is_same_v<T, half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s0.d[0]), "+f"(s0.d[1]), "+f"(s1.d[0]), "+f"(s1.d[1])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(s0.d[0]), "+f"(s0.d[1]), "+f"(s1.d[0]), "+f"(s1.d[1])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
  }
  d0.e = s0;
  d1.e = s1;
  d0.is_transposed = d1.is_transposed = true;
}
// Zeros to begin such sums with.
SM_INLINE void softmetal_clear_broad(simdgroup_matrix<float, 8, 8>& d) {
  d.e = vec<float, 2>(0.0f);
  d.is_transposed = true;
}

// Four bytes out of those of a (0 to 3) and b (4 to 7), as the digits of `which` say, the lowest first.
SM_INLINE uint softmetal_permute(uint a, uint b, uint which) {
  uint r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
  return r;
}

// What the macro SOFTMETAL_WIDE_MATRICES promises to kernels: two rows of matrices by one column, two deep, at once.
//   d[i] += a[i][0] * b[0] + a[i][1] * b[1]
template <class T>
SM_COLLECTIVE void softmetal_multiply_wide(simdgroup_matrix<float, 8, 8>& d0, simdgroup_matrix<float, 8, 8>& d1,
                                           const simdgroup_matrix<T, 8, 8>& a00, const simdgroup_matrix<T, 8, 8>& a01,
                                           const simdgroup_matrix<T, 8, 8>& a10, const simdgroup_matrix<T, 8, 8>& a11,
                                           const simdgroup_matrix<T, 8, 8>& b0, const simdgroup_matrix<T, 8, 8>& b1) {
  if constexpr (sizeof(T) == 4) {
    simdgroup_multiply_accumulate(d0, a00, b0, d0);
    simdgroup_multiply_accumulate(d0, a01, b1, d0);
    simdgroup_multiply_accumulate(d1, a10, b0, d1);
    simdgroup_multiply_accumulate(d1, a11, b1, d1);
  } else {
    softmetal_multiply_16(d0, d1, a00, a01, a10, a11, b0, b1);
  }
}

// d += a0 * b0 + a1 * b1
template <class T>
SM_COLLECTIVE void softmetal_multiply_deep(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<T, 8, 8>& a0,
                                           const simdgroup_matrix<T, 8, 8>& a1, const simdgroup_matrix<T, 8, 8>& b0,
                                           const simdgroup_matrix<T, 8, 8>& b1) {
  if constexpr (sizeof(T) == 4) {
    simdgroup_multiply_accumulate(d, a0, b0, d);
    simdgroup_multiply_accumulate(d, a1, b1, d);
  } else {
    simdgroup_matrix<float, 8, 8> nothing = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    const simdgroup_matrix<T, 8, 8> zero = make_filled_simdgroup_matrix<T, 8, 8>((T)0.0f);
    softmetal_multiply_16(d, nothing, a0, a1, zero, zero, b0, b1);
  }
}

// Eight rows by four runs of 8 columns, `apart` elements from one to the next, as four matrices, 16 bytes a lane.
// Matrix j has columns 2 j and 2 j + 1 of each run. Rows from `count` on are zeros.
template <class T>
SM_INLINE void softmetal_load_wide(simdgroup_matrix<T, 8, 8>* m, const T* from, ulong stride, bool transpose,
                                   uint count, uint apart) {
  if constexpr (sizeof(T) == 4) {
    const T* at = from + sm::matrix_row() * stride + sm::matrix_column();
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j) {
      m[j].e = count >= 8 || sm::matrix_row() < count ? *(const vec<T, 2>*)(at + j * apart) : vec<T, 2>((T)0.0f);
      m[j].is_transposed = transpose;
    }
    return;
  }
  uint4 words = uint4(0);
  if (count >= 8 || sm::matrix_row() < count)
    words = *(const uint4*)(from + sm::matrix_row() * stride + sm::lane() % 4 * apart);
#pragma clang loop unroll(full)
  for (uint j = 0; j < 4; ++j) {
    __builtin_memcpy(&m[j].e, &words.d[j], sizeof(T) == 2 ? 4 : 0);
    m[j].is_transposed = transpose;
  }
}
// Two times eight rows of those, as the left operand of products of 16 rows, which is four registers in a row: two of
// each eight, of which a load fills four of one. Put together anew they are numbers of their own, whose registers
// ptxas is free to choose; else it copies all four for each product.
template <class T>
SM_INLINE void softmetal_load_left(simdgroup_matrix<T, 8, 8>* upper, simdgroup_matrix<T, 8, 8>* lower, const T* from,
                                   ulong stride) {
  softmetal_load_wide(upper, from, stride, false, 8, 8);
  softmetal_load_wide(lower, from + 8 * stride, stride, false, 8, 8);
  if constexpr (sizeof(T) == 2) {
#pragma clang loop unroll(full)
    for (uint j = 0; j < 8; ++j) {
      auto& e = (j < 4 ? upper[j] : lower[j - 4]).e;
      uint word;
      asm("{.reg .b16 a, b; mov.b32 {a, b}, %1; mov.b32 %0, {a, b};}" : "=r"(word) : "r"(as_type<uint>(e)));
      e = as_type<vec<T, 2>>(word);
    }
  }
}
// The same from registers: the lane's row and run as softmetal_load_wide has them.
template <class T>
SM_COLLECTIVE void softmetal_set_wide(simdgroup_matrix<T, 8, 8>* m, vec<T, 2> a, vec<T, 2> b, vec<T, 2> c, vec<T, 2> d,
                                      bool transpose) {
  if constexpr (sizeof(T) == 4) {
    // Element (row, 2 k) of matrix j is column 2 k of run j: lane 4 row + j has it, in pair k.
    const uint row = sm::lane() & ~3u, pair = sm::lane() % 4;
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j) {
      const vec<T, 2> w = simd_shuffle(a, (ushort)(row + j)), x = simd_shuffle(b, (ushort)(row + j));
      const vec<T, 2> y = simd_shuffle(c, (ushort)(row + j)), z = simd_shuffle(d, (ushort)(row + j));
      m[j].e = pair == 0 ? w : pair == 1 ? x : pair == 2 ? y : z;
      m[j].is_transposed = transpose;
    }
    return;
  }
  m[0].e = a;
  m[1].e = b;
  m[2].e = c;
  m[3].e = d;
#pragma clang loop unroll(full)
  for (uint j = 0; j < 4; ++j) m[j].is_transposed = transpose;
}
// Two matrices of eight rows and two of the eight below, from a lane's registers as a left operand has them.
template <class T>
SM_INLINE void softmetal_set_pair(simdgroup_matrix<T, 8, 8>* upper, simdgroup_matrix<T, 8, 8>* lower, uint4 words) {
#pragma clang loop unroll(full)
  for (uint j = 0; j < 2; ++j) {
    __builtin_memcpy(&upper[j].e, &words.d[j * 2], sizeof(T) == 2 ? 4 : 0);
    __builtin_memcpy(&lower[j].e, &words.d[j * 2 + 1], sizeof(T) == 2 ? 4 : 0);
    upper[j].is_transposed = lower[j].is_transposed = false;
  }
}
// d += a
SM_COLLECTIVE void softmetal_add(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<float, 8, 8>& a) {
  const vec<float, 2> x = d.rows(), y = a.rows();
  d.e = vec<float, 2>(x.d[0] + y.d[0], x.d[1] + y.d[1]);
  d.is_transposed = false;
}
// d = d f + a g where g is not negative
SM_COLLECTIVE void softmetal_fold(simdgroup_matrix<float, 8, 8>& d, const simdgroup_matrix<float, 8, 8>& f,
                                  const simdgroup_matrix<float, 8, 8>& a, const simdgroup_matrix<float, 8, 8>& g) {
  const vec<float, 2> x = d.rows(), y = f.rows(), z = a.rows(), w = g.rows();
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) d.e.d[i] = w.d[i] < 0 ? x.d[i] : __builtin_fmaf(x.d[i], y.d[i], z.d[i] * w.d[i]);
  d.is_transposed = false;
}
// Likewise from integers of eight bits, 8 bytes a lane.
SM_INLINE void softmetal_load_wide(simdgroup_matrix<half, 8, 8>* m, const int8_t* from, ulong stride, bool transpose,
                                   uint count) {
  uint2 words = uint2(0);
  if (count >= 8 || sm::matrix_row() < count)
    words = *(const uint2*)(from + sm::matrix_row() * stride + sm::matrix_column() * 4);
#pragma clang loop unroll(full)
  for (uint j = 0; j < 4; ++j) {
    const uint bytes = (words.d[j / 2] ^ 0x80808080u) >> (j % 2 * 16);
    m[j].e =
        as_type<vec<half, 2>>((bytes & 0xffu) | (bytes & 0xff00u) << 8 | 0x64006400u) - vec<half, 2>((half)1152.0f);
    m[j].is_transposed = transpose;
  }
}
// Eight rows by 64 columns as eight matrices: whole lines of memory. A lane takes 16 neighbouring columns; matrix j has
// columns 16 i + 2 j and 16 i + 2 j + 1 of each i. Rows from `count` on are zeros. First the loads, into eight words,
// ...
template <class S>
SM_INLINE void softmetal_fetch_lines(uint* words, const S* from, ulong stride, uint count) {
#pragma clang loop unroll(full)
  for (uint j = 0; j < sizeof(S) * 4; ++j) words[j] = 0;
  if (count >= 8 || sm::matrix_row() < count) {
    const auto* at = (const uint4*)(from + sm::matrix_row() * stride + sm::matrix_column() * 8);
#pragma clang loop unroll(full)
    for (uint i = 0; i < sizeof(S); ++i) {
      const uint4 four = at[i];
#pragma clang loop unroll(full)
      for (uint j = 0; j < 4; ++j)
        if (i * 4 + j < 8) words[i * 4 + j] = four.d[j];
    }
  }
}
// Row `index` in the place of what was loaded for it.
template <class S>
SM_INLINE void softmetal_patch_lines(uint* words, const S* row, uint index) {
  if (sm::matrix_row() != index) return;
  const auto* at = (const uint4*)(row + sm::matrix_column() * 8);
#pragma clang loop unroll(full)
  for (uint i = 0; i < sizeof(S); ++i) {
    const uint4 four = at[i];
#pragma clang loop unroll(full)
    for (uint j = 0; j < 4; ++j)
      if (i * 4 + j < 8) words[i * 4 + j] = four.d[j];
  }
}
// ... then what the words mean.
template <class T, class S>
SM_INLINE void softmetal_take_lines(simdgroup_matrix<T, 8, 8>* m, const uint* words, bool transpose) {
#pragma clang loop unroll(full)
  for (uint j = 0; j < 8; ++j) {
    m[j].is_transposed = transpose;
    if constexpr (sizeof(T) != 2) {
    } else if constexpr (sizeof(S) == 2) {
      m[j].e = as_type<vec<T, 2>>(words[j]);
    } else {
      const uint bytes = (words[j / 2] ^ 0x80808080u) >> (j % 2 * 16);
      m[j].e = as_type<vec<T, 2>>((bytes & 0xffu) | (bytes & 0xff00u) << 8 | 0x64006400u) - vec<T, 2>((T)1152.0f);
    }
  }
}
template <class T, class S>
SM_INLINE void softmetal_load_lines(simdgroup_matrix<T, 8, 8>* m, const S* from, ulong stride, bool transpose,
                                    uint count) {
  uint words[16];
  softmetal_fetch_lines(words, from, stride, count);
  softmetal_take_lines<T, S>(m, words, transpose);
}

// Two times eight rows by `width` columns, 32 or 64, as right operands of softmetal_load_fours' left ones: columns j in
// m[j
// * 2] and m[j * 2 + 1]. A lane takes four neighbouring rows, 16 bytes or less of each, and pairs the elements of two:
// nothing has to be transposed. Matrix j has columns width / 8 * i + j of each i. Rows that the counts have not are
// zeros: a count has the first row in the bits above the fourth. First the loads, [row][4], ...
template <class S>
SM_INLINE void softmetal_fetch_right(uint* words, const S* first, const S* second, ulong stride, uint width,
                                     uint first_count, uint second_count) {
  const bool in_second = sm::lane() % 4 >= 2;
  const uint row = sm::lane() % 2 * 4, take = width / 8;  // elements of a row
  const S* from = (in_second ? second : first) + row * stride + sm::matrix_row() * take;
  const uint count = in_second ? second_count : first_count;
#pragma clang loop unroll(full)
  for (uint r = 0; r < 4; ++r) {
    uint4 loaded = uint4(0);
    if (count == 8 || (row + r >= count >> 4 && row + r < (count & 15))) {
      const void* at = from + r * stride;
      if (take * sizeof(S) == 16) loaded = *(const uint4*)at;
      if (take * sizeof(S) == 8) {
        const uint2 two = *(const uint2*)at;
        loaded.d[0] = two.d[0];
        loaded.d[1] = two.d[1];
      }
      if (take * sizeof(S) == 4) loaded.d[0] = *(const uint*)at;
    }
#pragma clang loop unroll(full)
    for (uint i = 0; i < 4; ++i) words[r * 4 + i] = loaded.d[i];
  }
}
// Row `index` of the sixteen in the place of what was loaded for it.
template <class S>
SM_INLINE void softmetal_patch_right(uint* words, const S* row, uint width, uint index) {
  const uint take = width / 8;
  const S* from = row + sm::matrix_row() * take;
#pragma clang loop unroll(full)
  for (uint i = 0; i < 4; ++i) {
    if (sm::lane() % 4 * 4 + i == index) {
      if (take * sizeof(S) == 16) {
        const uint4 four = *(const uint4*)from;
#pragma clang loop unroll(full)
        for (uint j = 0; j < 4; ++j) words[i * 4 + j] = four.d[j];
      }
      if (take * sizeof(S) == 8) {
        const uint2 two = *(const uint2*)from;
        words[i * 4] = two.d[0];
        words[i * 4 + 1] = two.d[1];
      }
      if (take * sizeof(S) == 4) words[i * 4] = *(const uint*)from;
    }
  }
}
// ... then the pairs.
template <class T, class S>
SM_INLINE void softmetal_take_right(simdgroup_matrix<T, 8, 8>* m, const uint* words, uint width) {
  if constexpr (sizeof(T) != 2) return;  // no kernel asks for it
#pragma clang loop unroll(full)
  for (uint tile = 0; tile < 2; ++tile) {
    const uint *upper = words + tile * 8, *lower = upper + 4;
#pragma clang loop unroll(full)
    for (uint j = 0; j < 8; ++j) {
      if (j < width / 8) {
        uint pair;
        if constexpr (sizeof(T) != 2) {
        } else if constexpr (sizeof(S) == 2) {
          asm("prmt.b32 %0, %1, %2, %3;"
              : "=r"(pair)
              : "r"(upper[j / 2]), "r"(lower[j / 2]), "r"(j % 2 ? 0x7632u : 0x5410u));
          m[j * 2 + tile].e = as_type<vec<T, 2>>(pair);
        } else {
          asm("prmt.b32 %0, %1, %2, %3;"
              : "=r"(pair)
              : "r"(upper[j / 4]), "r"(lower[j / 4]), "r"((4u + j % 4) << 8 | j % 4));
          // 0x6400 plus a byte, as a half, is 1024 plus the byte.
          m[j * 2 + tile].e =
              as_type<vec<T, 2>>(((pair ^ 0x00800080u) & 0x00ff00ffu) | 0x64006400u) - vec<T, 2>((T)1152.0f);
        }
        m[j * 2 + tile].is_transposed = true;
      }
    }
  }
}
template <class T, class S>
SM_INLINE void softmetal_load_right(simdgroup_matrix<T, 8, 8>* m, const S* first, const S* second, ulong stride,
                                    uint width, uint first_count, uint second_count) {
  if constexpr (sizeof(T) != 2) return;
  uint words[16];
  softmetal_fetch_right(words, first, second, stride, width, first_count, second_count);
  softmetal_take_right<T, S>(m, words, width);
}
// Sums whose right operands softmetal_load_right loaded: eight rows of `width` columns.
SM_COLLECTIVE void softmetal_store_right(const simdgroup_matrix<float, 8, 8>* m, float* to, ulong stride, uint width) {
  const uint take = width / 8;
  if (m[0].is_transposed) {
    float* at = to + sm::matrix_column() * stride + sm::matrix_row() * take;
#pragma clang loop unroll(full)
    for (uint half = 0; half < 2; ++half) {
#pragma clang loop unroll(full)
      for (uint j = 0; j < 8; j += 4) {
        if (j < take)
          *(vec<float, 4>*)(at + half * stride + j) =
              vec<float, 4>(m[j].e.d[half], m[j + 1].e.d[half], m[j + 2].e.d[half], m[j + 3].e.d[half]);
      }
    }
    return;
  }
  float* at = to + sm::matrix_row() * stride + sm::matrix_column() * take;
#pragma clang loop unroll(full)
  for (uint half = 0; half < 2; ++half) {
#pragma clang loop unroll(full)
    for (uint j = 0; j < 8; j += 4) {
      if (j < take)
        *(vec<float, 4>*)(at + half * take + j) = vec<float, 4>(m[j].rows().d[half], m[j + 1].rows().d[half],
                                                                m[j + 2].rows().d[half], m[j + 3].rows().d[half]);
    }
  }
}

// In one instruction, which subnormal results would make four.
SM_INLINE float softmetal_power_of_two(float x) { return __nvvm_ex2_approx_ftz_f(x); }
// Two numbers rounded at once.
template <class T>
SM_INLINE vec<T, 2> softmetal_rounded_two(vec<float, 2> x) {
  uint word;
  if constexpr (is_same_v<T, half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(x.d[1]), "f"(x.d[0]));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(x.d[1]), "f"(x.d[0]));
  return as_type<vec<T, 2>>(word);
}

// Two matrices side by side as what lanes hold of them: two numbers of each.
SM_COLLECTIVE vec<float, 4> softmetal_take_four(const simdgroup_matrix<float, 8, 8>& left,
                                                const simdgroup_matrix<float, 8, 8>& right) {
  const vec<float, 2> a = left.rows(), b = right.rows();
  return vec<float, 4>(a.d[0], a.d[1], b.d[0], b.d[1]);
}
template <class T>
SM_INLINE void softmetal_set_four(simdgroup_matrix<T, 8, 8>* m, vec<T, 4> four) {
#pragma clang loop unroll(full)
  for (uint i = 0; i < 2; ++i) {
    m[i].e = vec<T, 2>(four.d[i * 2], four.d[i * 2 + 1]);
    m[i].is_transposed = false;
  }
}
// Eight rows of sixteen columns as left operands: a lane's four neighbouring columns, two in each matrix.
template <class T>
SM_INLINE void softmetal_load_fours(simdgroup_matrix<T, 8, 8>* m, const T* from, uint stride) {
  softmetal_set_four(m, *(const vec<T, 4>*)(from + sm::matrix_row() * stride + sm::matrix_column() * 2));
}
// Four matrices from threadgroup memory in one instruction, as mma wants its right operand: lane l says where row l % 8
// of matrix l / 8 begins.
template <class T>
SM_COLLECTIVE void softmetal_load_square(simdgroup_matrix<T, 8, 8>* m, const T* from, uint stride) {
  static_assert(sizeof(T) == 2);
  const uint lane = sm::lane();
  const T* row = from + lane % 16 * stride + lane / 16 * 8;
  const uint at = (uint)(ulong)(__attribute__((address_space(3))) const void*)row;
  uint words[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(at)
               : "memory");
#pragma clang loop unroll(full)
  for (uint i = 0; i < 4; ++i) {
    m[i].e = as_type<vec<T, 2>>(words[i]);
    m[i].is_transposed = true;
  }
}

}  // namespace metal
