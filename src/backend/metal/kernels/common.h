// What every kernel file starts with. The build joins params.h, this and the other files into one source, so names that
// a file keeps to itself carry its subject as a prefix, and nothing may depend on the order of the files.
#pragma once

#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

#include "params.h"

using namespace metal;

// 0 where the device or its language has no bfloat: the kernels for it are then left out.
#ifndef INGOT_BFLOAT
#define INGOT_BFLOAT 1
#endif

// ---- what only some devices can do ----

// A kernel marked STARTS_EARLY may begin while the dispatch before it still runs. It calls wait_for_dispatches() before
// it touches what any dispatch writes; weights are never written.
#ifdef SOFTMETAL_EARLY_START
#define STARTS_EARLY [[softmetal_early]]
METAL_FUNC void wait_for_dispatches() { softmetal_wait_for_dispatches(); }
#else
#define STARTS_EARLY
METAL_FUNC void wait_for_dispatches() {}
#endif

// Copies of 16 bytes to threadgroup memory, which some devices make beside the thread that asks for them and without
// its registers. end_copies() follows the last of them at once: loads in between would be waited for too. The thread
// waits before it reads what it copied, and before a barrier behind which others do.
METAL_FUNC void begin_copy(threadgroup uint4* to, device const uint4* from) {
#ifdef SOFTMETAL_COPIES
  softmetal_begin_copy(to, from);
#else
  *to = *from;
#endif
}
METAL_FUNC void end_copies() {
#ifdef SOFTMETAL_COPIES
  softmetal_end_copies();
#endif
}
// Of what was copied before the last `left` ends, up to 3 of them.
METAL_FUNC void wait_for_copies(uint left = 0) {
#ifdef SOFTMETAL_COPIES
  softmetal_wait_for_copies(left);
#endif
}

// ---- matrices, several at a time ----
//
// Some matrix units take 16 rows by 16 columns at once, and lanes that load 16 bytes: softmetal has both for NVIDIA
// GPUs and says so by a macro. Elsewhere these are the operations on 8 by 8 matrices that they stand for.

#ifdef SOFTMETAL_WIDE_MATRICES
constant constexpr bool kWideMatrices = true;
constant constexpr bool kHalfSubnormals = true;  // halves below 2^-14 are numbers like any other, and as fast
#else
constant constexpr bool kWideMatrices = false;
constant constexpr bool kHalfSubnormals = false;
#endif
#define MATRIX_UNROLL _Pragma("clang loop unroll(full)")
#define MATRIX_ROLLED _Pragma("clang loop unroll(disable)")
// Unrolled where a device that has such matrices has the registers, too.
#ifdef SOFTMETAL_WIDE_MATRICES
#define MATRIX_UNROLL_WIDE MATRIX_UNROLL
#else
#define MATRIX_UNROLL_WIDE MATRIX_ROLLED
#endif

// d0 += a00 b0 + a01 b1, d1 += a10 b0 + a11 b1
template <typename T>
METAL_FUNC void matrix_multiply_wide(thread simdgroup_float8x8& d0, thread simdgroup_float8x8& d1,
                                     thread const simdgroup_matrix<T, 8, 8>& a00,
                                     thread const simdgroup_matrix<T, 8, 8>& a01,
                                     thread const simdgroup_matrix<T, 8, 8>& a10,
                                     thread const simdgroup_matrix<T, 8, 8>& a11,
                                     thread const simdgroup_matrix<T, 8, 8>& b0,
                                     thread const simdgroup_matrix<T, 8, 8>& b1) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_multiply_wide(d0, d1, a00, a01, a10, a11, b0, b1);
#else
  simdgroup_multiply_accumulate(d0, a00, b0, d0);
  simdgroup_multiply_accumulate(d0, a01, b1, d0);
  simdgroup_multiply_accumulate(d1, a10, b0, d1);
  simdgroup_multiply_accumulate(d1, a11, b1, d1);
#endif
}
// d += a0 b0 + a1 b1
template <typename T>
METAL_FUNC void matrix_multiply_deep(thread simdgroup_float8x8& d, thread const simdgroup_matrix<T, 8, 8>& a0,
                                     thread const simdgroup_matrix<T, 8, 8>& a1,
                                     thread const simdgroup_matrix<T, 8, 8>& b0,
                                     thread const simdgroup_matrix<T, 8, 8>& b1) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_multiply_deep(d, a0, a1, b0, b1);
#else
  simdgroup_multiply_accumulate(d, a0, b0, d);
  simdgroup_multiply_accumulate(d, a1, b1, d);
#endif
}

// d0 += a0 b00 + a1 b10, d1 += a0 b01 + a1 b11. Sums begin with matrix_clear_broad.
template <typename T>
METAL_FUNC void matrix_multiply_broad(thread simdgroup_float8x8& d0, thread simdgroup_float8x8& d1,
                                      thread const simdgroup_matrix<T, 8, 8>& a0,
                                      thread const simdgroup_matrix<T, 8, 8>& a1,
                                      thread const simdgroup_matrix<T, 8, 8>& b00,
                                      thread const simdgroup_matrix<T, 8, 8>& b10,
                                      thread const simdgroup_matrix<T, 8, 8>& b01,
                                      thread const simdgroup_matrix<T, 8, 8>& b11) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_multiply_broad(d0, d1, a0, a1, b00, b10, b01, b11);
#else
  simdgroup_multiply_accumulate(d0, a0, b00, d0);
  simdgroup_multiply_accumulate(d0, a1, b10, d0);
  simdgroup_multiply_accumulate(d1, a0, b01, d1);
  simdgroup_multiply_accumulate(d1, a1, b11, d1);
#endif
}
METAL_FUNC void matrix_clear_broad(thread simdgroup_float8x8& d) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_clear_broad(d);
#else
  d = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
#endif
}

// Of eight rows those that are there, [first, count), as one number: the count itself where first is 0. The others are
// zeros, whatever lies in their place.
METAL_FUNC uint matrix_rows(uint first, uint count) { return first << 4 | count; }
METAL_FUNC bool matrix_has_row(uint rows, uint row) { return row >= rows >> 4 && row < (rows & 15); }

// Eight rows of 32 columns as four matrices: four runs of 8 columns, `apart` elements from one to the next. Which
// columns a matrix has is the device's business: it is the same for all that is loaded here, so products over these
// columns agree. Rows that `count` (matrix_rows) has not are zeros and not read. Runs begin at multiples of 16 bytes.
// `part` is [8][32] of the simdgroup's own.
template <typename T, typename Pointer>
METAL_FUNC void matrix_load_wide(thread simdgroup_matrix<T, 8, 8>* m, Pointer from, ulong stride, bool transpose,
                                 uint count, threadgroup T* part, uint lane, uint apart = 8) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_wide(m, from, stride, transpose, count, apart);
#else
  if (count == 8) {
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) simdgroup_load(m[j], from + j * apart, stride, ulong2(0, 0), transpose);
    return;
  }
  for (uint i = lane; i < 256; i += 32)
    part[i] = matrix_has_row(count, i / 32) ? from[i / 32 * stride + i % 32 / 8 * apart + i % 8] : T(0);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) simdgroup_load(m[j], part + j * 8, 32, ulong2(0, 0), transpose);
  simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
}
// Sixteen rows of them in threadgroup memory, as left operands, the lower eight apart.
template <typename T>
METAL_FUNC void matrix_load_left(thread simdgroup_matrix<T, 8, 8>* upper, thread simdgroup_matrix<T, 8, 8>* lower,
                                 threadgroup const T* from, ulong stride) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_left(upper, lower, from, stride);
#else
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
    simdgroup_load(upper[j], from + j * 8, stride);
    simdgroup_load(lower[j], from + 8 * stride + j * 8, stride);
  }
#endif
}
// The same from registers: lane l gives the eight columns of run l % 4 of row l / 4, two a pair. In two steps, with a
// barrier of the simdgroup between them and behind them, so that many can share it; then at once.
template <typename T>
METAL_FUNC void matrix_put_wide(threadgroup T* part, vec<T, 2> a, vec<T, 2> b, vec<T, 2> c, vec<T, 2> d, uint lane) {
#ifndef SOFTMETAL_WIDE_MATRICES
  threadgroup vec<T, 2>* to = (threadgroup vec<T, 2>*)part + lane * 4;
  to[0] = a;
  to[1] = b;
  to[2] = c;
  to[3] = d;
#endif
}
template <typename T>
METAL_FUNC void matrix_take_wide(thread simdgroup_matrix<T, 8, 8>* m, vec<T, 2> a, vec<T, 2> b, vec<T, 2> c,
                                 vec<T, 2> d, bool transpose, threadgroup const T* part) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_set_wide(m, a, b, c, d, transpose);
#else
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) simdgroup_load(m[j], part + j * 8, 32, ulong2(0, 0), transpose);
#endif
}
METAL_FUNC void matrix_barrier() {
  if (!kWideMatrices) simdgroup_barrier(mem_flags::mem_threadgroup);
}
template <typename T>
METAL_FUNC void matrix_set_wide(thread simdgroup_matrix<T, 8, 8>* m, vec<T, 2> a, vec<T, 2> b, vec<T, 2> c, vec<T, 2> d,
                                bool transpose, threadgroup T* part, uint lane) {
  matrix_put_wide(part, a, b, c, d, lane);
  matrix_barrier();
  matrix_take_wide(m, a, b, c, d, transpose, part);
  matrix_barrier();
}
// Where a library that takes columns in order wants pair `pair` of run `run` of four, to multiply the same ones at
// once.
METAL_FUNC uint matrix_place(uint run, uint pair) { return kWideMatrices ? pair * 8 + run * 2 : run * 8 + pair * 2; }
// 32 bits as two numbers of 16; there are none of 32.
template <typename T>
struct MatrixPair {
  static METAL_FUNC vec<T, 2> of(uint bits) { return as_type<vec<T, 2>>(bits); }
};
template <>
struct MatrixPair<float> {
  static METAL_FUNC vec<float, 2> of(uint bits) { return vec<float, 2>(float(bits)); }
};
// The same where each lane knows where its eight columns are, of 16 bits each.
template <typename T>
METAL_FUNC void matrix_load_lanes(thread simdgroup_matrix<T, 8, 8>* m, device const T* from, bool transpose,
                                  threadgroup T* part, uint lane) {
  const uint4 bits = *(device const uint4*)from;
  matrix_set_wide(m, MatrixPair<T>::of(bits.x), MatrixPair<T>::of(bits.y), MatrixPair<T>::of(bits.z),
                  MatrixPair<T>::of(bits.w), transpose, part, lane);
}
// The same from threadgroup memory, 32 times 16 bytes: lane l's are at matrix_turned(l, turn), `turn` up to 7, so that
// who puts runs of several such blocks there side by side finds banks of their own.
METAL_FUNC uint matrix_turned(uint place, uint turn) { return kWideMatrices ? place ^ turn : place; }
template <typename T>
METAL_FUNC void matrix_load_turned(thread simdgroup_matrix<T, 8, 8>* m, threadgroup const uint4* from, uint turn,
                                   bool transpose, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  const uint4 bits = from[matrix_turned(lane, turn)];
  softmetal_set_wide(m, MatrixPair<T>::of(bits.x), MatrixPair<T>::of(bits.y), MatrixPair<T>::of(bits.z),
                     MatrixPair<T>::of(bits.w), transpose);
#else
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j)
      simdgroup_load(m[j], (threadgroup const T*)from + j * 8, 32, ulong2(0, 0), transpose);
#endif
}
// Sixteen rows of 32 columns of 16 bits in threadgroup memory, 64 times 16 bytes, for matrix_load_pair: lane l gives
// eight columns, run l % 4, of rows l / 4 and l / 4 + 8. Where they are put is the device's business.
METAL_FUNC void matrix_put_pair(threadgroup uint4* to, uint4 upper, uint4 lower, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  to[lane] = uint4(upper.x, lower.x, upper.y, lower.y);  // in the order of a left operand's registers
  to[32 + lane] = uint4(upper.z, lower.z, upper.w, lower.w);
#else
  to[lane] = upper;
  to[32 + lane] = lower;
#endif
}
// Matrices `first` and first + 1 of the four of the upper rows, and of the lower, as matrix_load_wide has columns;
// `first` is 0 or 2.
template <typename T>
METAL_FUNC void matrix_load_pair(thread simdgroup_matrix<T, 8, 8>* upper, thread simdgroup_matrix<T, 8, 8>* lower,
                                 threadgroup const uint4* from, uint first, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_set_pair(upper, lower, from[first * 16 + lane]);
#else
  threadgroup const T* at = (threadgroup const T*)from + first * 8;
  MATRIX_UNROLL for (uint j = 0; j < 2; ++j) {
    simdgroup_load(upper[j], at + j * 8, 32);
    simdgroup_load(lower[j], at + 256 + j * 8, 32);
  }
#endif
}
// d += a. A product with the identity would carry a NaN into other rows.
METAL_FUNC void matrix_add(thread simdgroup_float8x8& d, thread simdgroup_float8x8& a) {
#ifdef SOFTMETAL_MATRIX_ADD
  softmetal_add(d, a);
#else
  d.thread_elements() += a.thread_elements();
#endif
}
// d = d * factor + a * next, element by element, but where `next` is kMatrixKept: there d stays as it is, whatever a
// is.
constant constexpr float kMatrixKept = -1;
METAL_FUNC void matrix_fold(thread simdgroup_float8x8& d, thread simdgroup_float8x8& factor,
                            thread simdgroup_float8x8& a, thread simdgroup_float8x8& next) {
#ifdef SOFTMETAL_MATRIX_ADD
  softmetal_fold(d, factor, a, next);
#else
  const float2 old = d.thread_elements(), by = next.thread_elements();
  d.thread_elements() = select(fma(old, factor.thread_elements(), a.thread_elements() * by), old, by < 0.0f);
#endif
}
// The four integers of a word as halves. 0x6400 plus a byte, as a half, is 1024 plus the byte.
METAL_FUNC half4 matrix_halves(uint word) {
  const uint bytes = word ^ 0x80808080u;
  const uint low = (bytes & 0xffu) | (bytes & 0xff00u) << 8 | 0x64006400u;
  const uint high = (bytes >> 16 & 0xffu) | (bytes >> 8 & 0xff0000u) | 0x64006400u;
  return half4(as_type<half2>(low) - half2(1152), as_type<half2>(high) - half2(1152));
}
// Eight rows of up to 32 columns (a multiple of 8) of integers, as matrices of halves. Rows begin at multiples of 8
// bytes.
METAL_FUNC void matrix_load_integers(thread simdgroup_matrix<half, 8, 8>* m, device const int8_t* from, ulong stride,
                                     bool transpose, uint columns, uint count, threadgroup half* part, uint lane) {
  const uint row = lane / 4, column = lane % 4 * 8;
  uint2 words = uint2(0);
  if (matrix_has_row(count, row) && column < columns) words = *(device const uint2*)(from + row * stride + column);
  *(threadgroup half4*)(part + lane * 8) = matrix_halves(words.x);
  *(threadgroup half4*)(part + lane * 8 + 4) = matrix_halves(words.y);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < columns)
      simdgroup_load(m[j], part + j * 8, 32, ulong2(0, 0), transpose);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
METAL_FUNC void matrix_load_wide(thread simdgroup_matrix<half, 8, 8>* m, device const int8_t* from, ulong stride,
                                 bool transpose, uint count, threadgroup half* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_wide(m, from, stride, transpose, count);
#else
  matrix_load_integers(m, from, stride, transpose, 32, count, part, lane);
#endif
}
// Eight rows of 64 columns as eight matrices. Products over these columns agree where both sides were loaded so.
template <typename T, typename Pointer>
METAL_FUNC void matrix_load_lines(thread simdgroup_matrix<T, 8, 8>* m, Pointer from, ulong stride, bool transpose,
                                  uint count, threadgroup T* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_lines(m, from, stride, transpose, count);
#else
  matrix_load_wide(m, from, stride, transpose, count, part, lane);
  matrix_load_wide(m + 4, from + 32, stride, transpose, count, part, lane);
#endif
}
// Two times eight rows of `width` columns (32 or 64) as right operands of products, m[j * 2] and m[j * 2 + 1]. Which of
// the rows a matrix has is the device's business again, and matrix_load_fours'; which columns, matrix_store_right's.
template <typename T, typename Pointer>
METAL_FUNC void matrix_load_right(thread simdgroup_matrix<T, 8, 8>* m, Pointer first, Pointer second, ulong stride,
                                  uint width, uint first_count, uint second_count, threadgroup T* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_right(m, first, second, stride, width, first_count, second_count);
#else
  MATRIX_UNROLL for (uint c = 0; c < 2; ++c) {
    if (c * 32 < width) {
      simdgroup_matrix<T, 8, 8> loaded[4];
      matrix_load_wide(loaded, first + c * 32, stride, false, first_count, part, lane);
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j) m[(c * 4 + j) * 2] = loaded[j];
      matrix_load_wide(loaded, second + c * 32, stride, false, second_count, part, lane);
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j) m[(c * 4 + j) * 2 + 1] = loaded[j];
    }
  }
#endif
}
// The same two in two steps, for numbers of 16 bits or less: where loads go to registers, fetching begins them and
// taking makes matrices of what came, `words` being 8 or 16 of the lane's own; elsewhere taking does it all. What has
// been written since is patched in, row by row.
template <typename S>
METAL_FUNC void matrix_fetch_lines(thread uint* words, device const S* from, ulong stride, uint count) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_fetch_lines(words, from, stride, count);
#endif
}
template <typename S>
METAL_FUNC void matrix_patch_lines(thread uint* words, threadgroup const S* row, uint index) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_patch_lines(words, row, index);
#endif
}
template <typename T, typename S>
METAL_FUNC void matrix_take_lines(thread simdgroup_matrix<T, 8, 8>* m, thread const uint* words, device const S* from,
                                  ulong stride, bool transpose, uint count, threadgroup T* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_take_lines<T, S>(m, words, transpose);
#else
  matrix_load_lines(m, from, stride, transpose, count, part, lane);
#endif
}
template <typename S>
METAL_FUNC void matrix_fetch_right(thread uint* words, device const S* first, device const S* second, ulong stride,
                                   uint width, uint first_count, uint second_count) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_fetch_right(words, first, second, stride, width, first_count, second_count);
#endif
}
template <typename S>
METAL_FUNC void matrix_patch_right(thread uint* words, threadgroup const S* row, uint width, uint index) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_patch_right(words, row, width, index);
#endif
}
template <typename T, typename S>
METAL_FUNC void matrix_take_right(thread simdgroup_matrix<T, 8, 8>* m, thread const uint* words, device const S* first,
                                  device const S* second, ulong stride, uint width, uint first_count, uint second_count,
                                  threadgroup T* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_take_right<T, S>(m, words, width);
#else
  matrix_load_right(m, first, second, stride, width, first_count, second_count, part, lane);
#endif
}
// Eight rows of `width` columns from the sums of products with them.
METAL_FUNC void matrix_store_right(thread const simdgroup_float8x8* m, threadgroup float* to, ulong stride,
                                   uint width) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_store_right(m, to, stride, width);
#else
  MATRIX_UNROLL for (uint j = 0; j < 8; ++j) if (j * 8 < width) simdgroup_store(m[j], to + j * 8, stride);
#endif
}

// ---- bytes ----
//
// Some devices put any four bytes of two words together at once.

// Byte `place` (0 to 3) of a, and of b 16 bits on; the bits between are anything.
METAL_FUNC uint byte_picker(uint place) { return kWideMatrices ? place * 0x1111u + 0x4400u : place * 8; }
METAL_FUNC uint bytes_at(uint a, uint b, uint picker) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_permute(a, b, picker);
#else
  return (a >> picker & 0xffu) | b >> picker << 16;
#endif
}
// Half `place` (0 to 3) of those of a and b, twice.
METAL_FUNC uint half_picker(uint place) { return kWideMatrices ? place * 0x2222u + 0x1010u : place; }
METAL_FUNC half2 halves_at(uint a, uint b, uint picker) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return as_type<half2>(softmetal_permute(a, b, picker));
#else
  const half2 both = as_type<half2>(picker < 2 ? a : b);
  return half2(picker % 2 == 0 ? both.x : both.y);
#endif
}
// Bytes 1 and 3 of a word, 16 bits apart.
METAL_FUNC uint odd_bytes(uint word) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_permute(word, 0, 0x4341u);
#else
  return word >> 8 & 0x00ff00ffu;
#endif
}

// Those of 16 bytes that two codes of 4 bits, 16 bits apart, stand for.
METAL_FUNC uint bytes_of(uint4 bytes, uint codes) {
#ifdef SOFTMETAL_WIDE_MATRICES
  const uint picker = (codes & 7u) | (codes >> 8 & 0x700u), upper = (codes >> 3 & 0x00010001u) * 255u;
  return (softmetal_permute(bytes.x, bytes.y, picker) & (upper ^ 0x00ff00ffu)) |
         (softmetal_permute(bytes.z, bytes.w, picker) & upper);
#else
  uint both = 0;
  MATRIX_UNROLL for (uint i = 0; i < 2; ++i) {
    const uint code = codes >> (i * 16);
    const uint word = code & 8u ? (code & 4u ? bytes.w : bytes.z) : (code & 4u ? bytes.y : bytes.x);
    both |= (word >> ((code & 3u) * 8) & 0xffu) << (i * 16);
  }
  return both;
#endif
}

// A word turned right by one byte: one operation, where a compiler that knows what is taken of it makes two shifts.
METAL_FUNC uint turned_bytes(uint word) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_permute(word, word, 0x0321u);
#else
  return rotate(word, 24u);
#endif
}

// `number` once more, from `place`, where it must be too: a compiler leaves what is made of it after the loads that are
// before this. A barrier alone would not do, as arithmetic passes it.
METAL_FUNC uint known_from_here(uint number, threadgroup uint* place) {
  simdgroup_barrier(mem_flags::mem_none);
  return kWideMatrices ? *(threadgroup volatile uint*)place : number;
}
// The number at `place` as one that a compiler knows nothing of: what is made of it is made anew behind this, in each
// turn of a loop, and takes no registers before.
METAL_FUNC uint number_anew(threadgroup uint* place) { return *(threadgroup volatile uint*)place; }

// ---- sixteen columns, four a lane ----
//
// Two matrices side by side, of which lane l has four numbers of row l / 4. Where lanes hold matrices in such a way
// this costs nothing; elsewhere they go through `part`, [8][16] of the simdgroup's own.

// The column of number j of lane l.
METAL_FUNC uint matrix_four_column(uint lane, uint j) {
  return kWideMatrices ? j / 2 * 8 + lane % 4 * 2 + j % 2 : lane % 4 * 4 + j;
}
// Where column `column` must be put so that lane l % 4 has columns 4 l to 4 l + 3 in order, and where a row must be put
// that is multiplied with it.
METAL_FUNC uint matrix_four_place(uint column) { return matrix_four_column(column / 4, column % 4); }
METAL_FUNC float4 matrix_take_four(thread const simdgroup_float8x8& left, thread const simdgroup_float8x8& right,
                                   threadgroup float* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_take_four(left, right);
#else
  simdgroup_store(left, part, 16);
  simdgroup_store(right, part + 8, 16);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float4 four = *(threadgroup const float4*)(part + lane / 4 * 16 + lane % 4 * 4);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return four;
#endif
}
// The way back, as left operands.
template <typename T>
METAL_FUNC void matrix_set_four(thread simdgroup_matrix<T, 8, 8>* m, vec<T, 4> four, threadgroup T* part, uint lane) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_set_four(m, four);
#else
  *(threadgroup vec<T, 4>*)(part + lane / 4 * 16 + lane % 4 * 4) = four;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(m[0], part, 16);
  simdgroup_load(m[1], part + 8, 16);
  simdgroup_barrier(mem_flags::mem_threadgroup);
#endif
}
// The same from threadgroup memory: eight rows of sixteen columns, beginning at multiples of 8 bytes.
template <typename T>
METAL_FUNC void matrix_load_fours(thread simdgroup_matrix<T, 8, 8>* m, threadgroup const T* from, uint stride) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_fours(m, from, stride);
#else
  simdgroup_load(m[0], from, stride);
  simdgroup_load(m[1], from + 8, stride);
#endif
}
// Sixteen rows of sixteen columns of 16 bits, 16 bytes each and so aligned, as right operands: m[j * 2] of the first
// eight rows and of columns 8 j on, m[j * 2 + 1] of the others.
template <typename T>
METAL_FUNC void matrix_load_square(thread simdgroup_matrix<T, 8, 8>* m, threadgroup const T* from, uint stride) {
#ifdef SOFTMETAL_WIDE_MATRICES
  softmetal_load_square(m, from, stride);
#else
  MATRIX_UNROLL for (uint i = 0; i < 4; ++i) simdgroup_load(m[i], from + i % 2 * 8 * stride + i / 2 * 8, stride);
#endif
}

// ---- numbers ----

// 2 to the power of x; what is too small for a number with all its digits may be zero.
METAL_FUNC float power_of_two(float x) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_power_of_two(x);
#else
  return exp2(x);
#endif
}
// Two numbers rounded to T, which some devices do at once.
template <typename T>
METAL_FUNC vec<T, 2> rounded_two(float2 x) {
#ifdef SOFTMETAL_WIDE_MATRICES
  return softmetal_rounded_two<T>(x);
#else
  return vec<T, 2>(T(x.x), T(x.y));
#endif
}

// Function constants by number: 0-19 norms and other small operations; 20-49 matrix products; 50-69 attention; 70-89
// sampling.
