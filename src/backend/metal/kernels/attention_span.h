// Eight query rows against a span of keys; see attention.metal.
#pragma once

#include "attention_cache.h"

constant constexpr uint kAttentionTiles = 4;                           // of eight keys, whose loads are issued together
constant uint ATTENTION_HEADS [[function_constant(kAttentionHeads)]];  // of a threadgroup; divides its simdgroups
constant constexpr float kMasked = -1e30f;  // stands for minus infinity, which fast math may not know

// Rows in threadgroup memory lie a little further apart than they are long: lanes of different rows meet different
// banks.
constant constexpr uint kScoreStride = kSpan + 16;
constant constexpr uint kWeightStride = kSpan + 8;
constant uint ATTENTION_SUM_STRIDE = ATTENTION_HEAD_SIZE + 8;
constant uint ATTENTION_WORK =
    8 * (ATTENTION_SUM_STRIDE > kScoreStride ? ATTENTION_SUM_STRIDE : kScoreStride);  // floats
constant constexpr uint kAttentionParts = 8 * kWeightStride + 256;        // weights, and a corner for cut tiles
constant uint ATTENTION_WIDTH = ATTENTION_HEAD_SIZE % 64 == 0 ? 64 : 32;  // dims taken together

// ---- one span ----

// Which of the values of eight keys from `key` on are there, for matrix loads: none that all rows have left behind, as
// a NaN or an infinity of theirs would survive a weight of zero. `begin` is the first key that a row sees, `length` how
// many there are.
static uint attention_rows(uint key, uint begin, uint length) {
  const uint count = min(length - key, 8u);
  return ATTENTION_WINDOW > 0 && begin > key ? matrix_rows(begin - key, count) : count;
}

// All dims of eight rows, for products over them.
template <typename C, typename Pointer>
static void attention_load_head(thread simdgroup_matrix<C, 8, 8>* m, Pointer from, bool transpose, uint count,
                                threadgroup C* part, uint lane) {
  MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += ATTENTION_WIDTH) {
    if (ATTENTION_WIDTH == 64)
      matrix_load_lines(m + d / 8, from + d, ATTENTION_HEAD_SIZE, transpose, count, part, lane);
    else
      matrix_load_wide(m + d / 8, from + d, ATTENTION_HEAD_SIZE, transpose, count, part, lane);
  }
}

// 32 keys, from tile `first` of the span on, by ATTENTION_WIDTH dims of the values.
template <typename S, typename C>
static void attention_load_values(thread simdgroup_matrix<C, 8, 8> (&v)[2][16], device const S* values,
                                  thread const uint (&heads)[kSpan / 8], uint first_key, uint first, uint dim,
                                  threadgroup C* part, uint lane) {
  MATRIX_UNROLL for (uint pair = 0; pair < 2; ++pair) {
    const uint tile = first + pair * 2;
    matrix_load_right(v[pair], values + attention_head_offset<S>(heads[tile], first_key + tile * 8) + dim,
                      values + attention_head_offset<S>(heads[tile + 1], first_key + tile * 8 + 8) + dim,
                      ATTENTION_HEAD_SIZE, ATTENTION_WIDTH, 8, 8, part, lane);
  }
}

// Scores of eight rows with eight keys, to [8][score stride].
template <typename C>
static void attention_score(thread const simdgroup_matrix<C, 8, 8>* rows, thread const simdgroup_matrix<C, 8, 8>* k,
                            threadgroup float* out) {
  simdgroup_float8x8 scores = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE / 8; d += 2)
      matrix_multiply_deep(scores, rows[d], rows[d + 1], k[d], k[d + 1]);
  simdgroup_store(scores, out, kScoreStride);
}

// Scores of a row with four keys, `first` keys from the span's first, as powers of two; of keys that it does not see
// what stands for none. Scores of tiles that no row sees were not written.
template <bool Whole, typename S>
static float4 attention_four_scores(threadgroup const float* scores, threadgroup const float* scales, uint first_key,
                                    uint low, uint high, float scale, uint row, uint first) {
  float4 found = float4(0.0f);
  if (Whole || (first_key + first < high && first_key + first + 4 > low))
    found = *(threadgroup const float4*)(scores + row * kScoreStride + first);
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
    const uint key = first_key + first + j;
    const bool seen = Whole || (key >= low && key < high);
    float value = seen ? found[j] * scale : kMasked;
    if (sizeof(S) == 1 && seen) value *= scales[first + j];
    found[j] = value;
  }
  return found;
}

// Weights of 64 keys, to [8][weight stride], from the scores of eight rows with them. Four lanes share a row (row =
// lane / 4), which sees keys [low, high). Returns the row's (largest score, sum of weights). `scales` are those of
// attention_scales. `Whole`: all rows see all 64 keys. The same operations in the same order, but without looking at
// every key.
template <bool Whole, typename S, typename C>
static float2 attention_softmax(threadgroup const float* scores,  // [8][score stride]
                                threadgroup const float* scales, uint first_key, uint low, uint high,
                                constant AttentionParams& p, threadgroup C* weights, uint lane) {
  const float scale = p.scale;
  // A lane has four times four keys of its row.
  const uint row = lane / 4, column = lane % 4 * 4;
  // Where registers are few, scores are made twice and not kept, in loops that nothing unrolls: from the lane's own
  // first key on.
  float4 kept[4];
  const uint begin = kWideMatrices ? 0 : column, shift = kWideMatrices ? column : 0;
  float best = kMasked;
  MATRIX_UNROLL_WIDE for (uint i = begin; i < kSpan; i += 16) {
    const float4 score = attention_four_scores<Whole, S>(scores, scales, first_key, low, high, scale, row, i + shift);
    if (kWideMatrices) kept[i / 16] = score;
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) best = max(best, score[j]);
  }
  best = max(best, simd_shuffle_xor(best, 1));
  best = max(best, simd_shuffle_xor(best, 2));
  // The scales of a row's values may lie anywhere, its weights are halves: a power of two is taken out of the scales,
  // and added to the score that the weights are relative to.
  uint power = 127;
  if (sizeof(S) == 1) {
    float largest = 0;
    MATRIX_UNROLL_WIDE for (uint i = begin; i < kSpan; i += 16) {
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
        const uint at = i + shift + j;
        if (Whole || (first_key + at >= low && first_key + at < high)) largest = max(largest, scales[kSpan + at]);
      }
    }
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    if (largest > 0) power = as_type<uint>(largest) >> 23;
  }
  const float inverse = as_type<float>((254 - power) << 23);
  float sum = 0;
  MATRIX_UNROLL_WIDE for (uint i = begin; i < kSpan; i += 16) {
    vec<C, 4> four;
    const float4 score =
        kWideMatrices ? kept[i / 16]
                      : attention_four_scores<Whole, S>(scores, scales, first_key, low, high, scale, row, i + shift);
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
      const uint at = i + shift + j;
      const bool seen = Whole || (first_key + at >= low && first_key + at < high);
      const float exact = seen ? power_of_two(score[j] - best) : 0.0f;
      const C weight = C(sizeof(S) == 1 && seen ? exact * (scales[kSpan + at] * inverse) : exact);
      four[j] = weight;
      sum += sizeof(S) == 1 ? exact : float(weight);
    }
    *(threadgroup vec<C, 4>*)(weights + row * kWeightStride + i + shift) = four;
  }
  sum += simd_shuffle_xor(sum, 1);
  sum += simd_shuffle_xor(sum, 2);
  if (sizeof(S) == 1) {
    sum *= inverse;
    best += float(int(power) - 127);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return float2(best, sum);
}

// sums += weights of sixteen keys times their values, `width` dims; sums are for matrix_multiply_broad
template <typename C>
static void attention_weigh(thread simdgroup_float8x8* sums, threadgroup const C* weights,
                            thread const simdgroup_matrix<C, 8, 8>* v, uint width) {
  simdgroup_matrix<C, 8, 8> seen[2];
  matrix_load_fours(seen, weights, kWeightStride);
  MATRIX_UNROLL for (uint j = 0; j < 8; j += 2) if (j * 8 < width)
      matrix_multiply_broad(sums[j], sums[j + 1], seen[0], seen[1], v[j * 2], v[j * 2 + 1], v[j * 2 + 2], v[j * 2 + 3]);
}

// Scores, softmax and weighted values of eight query rows against keys [span * 64, + 64). Four lanes share a row
// (row = lane / 4); a row sees keys [low, high), `begin` and `end` bound those of all rows, `length` is how many keys
// there are. Leaves the rows' values in `work` [8][sum stride] and returns the row's (largest score, sum of weights).
// `Whole`: all rows see all 64 keys. The same operations in the same order, but without looking at every key.
template <bool Whole, typename S, typename C>
static float2 attention_span_of(threadgroup const C* q,  // [8][head size]
                                device const S* keys, device const S* values, device const int* blocks, uint kv_head,
                                uint span, uint begin, uint end, uint length, uint low, uint high,
                                constant AttentionParams& p,
                                threadgroup float* work,  // [ATTENTION_WORK]
                                threadgroup C* weights,   // [8][weight stride]
                                threadgroup C* part,      // [8][32]
                                uint lane) {
  const uint first_key = span * kSpan;
  const uint first_tile = begin > first_key ? (begin - first_key) / 8 : 0;
  const uint last_tile = min((end - first_key + 7) / 8, kSpan / 8);
  const bool wide = ATTENTION_WIDE && sizeof(C) == 2;
  uint heads[kSpan / 8];  // whole: where the keys' block and KV head lie, counted in those
  simdgroup_matrix<C, 8, 8> v[2][16];
  if (wide) {
    simdgroup_matrix<C, 8, 8> rows[kMaxHeadSize / 8];
    attention_load_head(rows, q, false, 8, part, lane);
    if (Whole) {
      MATRIX_UNROLL for (uint tile = 0; tile < kSpan / 8; ++tile) heads[tile] =
          uint(blocks[(first_key + tile * 8) / ATTENTION_BLOCK_SIZE]) * p.kv_heads + kv_head;
      MATRIX_UNROLL for (uint first = 0; first < kSpan / 8; first += kAttentionTiles) {
        simdgroup_matrix<C, 8, 8> k[kAttentionTiles][kMaxHeadSize / 8];
        MATRIX_UNROLL for (uint t = 0; t < kAttentionTiles; ++t) attention_load_head(
            k[t], keys + attention_head_offset<S>(heads[first + t], first_key + (first + t) * 8), true, 8, part, lane);
        simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
        MATRIX_UNROLL for (uint t = 0; t < kAttentionTiles; ++t) attention_score(rows, k[t], work + (first + t) * 8);
      }
      attention_load_values(v, values, heads, first_key, 0, 0, part, lane);
    } else {
      MATRIX_ROLLED for (uint tile = first_tile; tile < last_tile; ++tile) {
        const uint key = first_key + tile * 8;
        simdgroup_matrix<C, 8, 8> k[kMaxHeadSize / 8];
        attention_load_head(k, keys + attention_tile_offset<S>(blocks, p.kv_heads, kv_head, key), true,
                            min(length - key, 8u), part, lane);
        attention_score(rows, k, work + tile * 8);
      }
    }
  } else {
    for (uint tile = first_tile; tile < last_tile; ++tile) {
      const uint key = first_key + tile * 8;
      device const S* k = keys + attention_tile_offset<S>(blocks, p.kv_heads, kv_head, key);
      simdgroup_float8x8 scores = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += 32) {
        simdgroup_matrix<C, 8, 8> a, b[4];
        const uint dims = min(32u, ATTENTION_HEAD_SIZE - d);
        attention_load(b, k + d, true, dims, min(length - key, 8u), part, lane);
        MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
          if (j * 8 < dims) {
            simdgroup_load(a, q + d + j * 8, ATTENTION_HEAD_SIZE);
            simdgroup_multiply_accumulate(scores, a, b[j], scores);
          }
        }
      }
      simdgroup_store(scores, work + tile * 8, kScoreStride);
    }
  }
  threadgroup float* scales = (threadgroup float*)part;  // nobody needs that between the two products
  attention_scales(scales, keys, values, blocks, p.kv_heads, kv_head, first_key, begin, end, lane);
  simdgroup_barrier(mem_flags::mem_threadgroup);

  const float2 result = attention_softmax<Whole, S>(work, scales, first_key, low, high, p, weights, lane);

  if (wide) {
    // Keys by sixteen at fixed places; weights of keys that are not seen are zero, and so are values that are not
    // there.
    MATRIX_UNROLL for (uint dim = 0; dim < ATTENTION_HEAD_SIZE; dim += ATTENTION_WIDTH) {
      simdgroup_float8x8 sums[8];
      MATRIX_UNROLL for (uint j = 0; j < 8; ++j) matrix_clear_broad(sums[j]);
      if (Whole) {
        MATRIX_UNROLL for (uint first = 0; first < kSpan / 8; first += 4) {
          if (dim + first > 0) attention_load_values(v, values, heads, first_key, first, dim, part, lane);
          simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
          MATRIX_UNROLL for (uint pair = 0; pair < 2; ++pair)
              attention_weigh(sums, weights + (first + pair * 2) * 8, v[pair], ATTENTION_WIDTH);
        }
      } else {
        MATRIX_ROLLED for (uint tile = first_tile / 2 * 2; tile < last_tile; tile += 2) {
          ulong offsets[2];
          uint counts[2];
          MATRIX_UNROLL for (uint i = 0; i < 2; ++i) {
            const uint key = first_key + (tile + i) * 8;
            const bool there = tile + i >= first_tile && tile + i < last_tile;
            counts[i] = there ? attention_rows(key, begin, length) : 0;
            offsets[i] = there ? attention_tile_offset<S>(blocks, p.kv_heads, kv_head, key) : 0;
          }
          matrix_load_right(v[0], values + offsets[0] + dim, values + offsets[1] + dim, ATTENTION_HEAD_SIZE,
                            ATTENTION_WIDTH, counts[0], counts[1], part, lane);
          attention_weigh(sums, weights + tile * 8, v[0], ATTENTION_WIDTH);
        }
      }
      matrix_store_right(sums, work + dim, ATTENTION_SUM_STRIDE, ATTENTION_WIDTH);
    }
  } else {
    for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += 32) {
      const uint dims = min(32u, ATTENTION_HEAD_SIZE - d);
      simdgroup_float8x8 sums[4];
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      for (uint tile = first_tile; tile < last_tile; ++tile) {
        const uint key = first_key + tile * 8;
        simdgroup_matrix<C, 8, 8> a, b[4];
        simdgroup_load(a, weights + tile * 8, kWeightStride);
        attention_load(b, values + attention_tile_offset<S>(blocks, p.kv_heads, kv_head, key) + d, false, dims,
                       attention_rows(key, begin, length), part, lane);
        MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < dims)
            simdgroup_multiply_accumulate(sums[j], a, b[j], sums[j]);
      }
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < dims)
          simdgroup_store(sums[j], work + d + j * 8, ATTENTION_SUM_STRIDE);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return result;
}

// `whole_from` and `whole_to` bound the keys that all rows see.
template <typename S, typename C>
static float2 attention_span(threadgroup const C* q, device const S* keys, device const S* values,
                             device const int* blocks, uint kv_head, uint span, uint begin, uint end, uint length,
                             uint low, uint high, uint whole_from, uint whole_to, constant AttentionParams& p,
                             threadgroup float* work, threadgroup C* weights, threadgroup C* part, uint lane) {
  if (ATTENTION_WIDE && span * kSpan >= whole_from && (span + 1) * kSpan <= whole_to)
    return attention_span_of<true>(q, keys, values, blocks, kv_head, span, begin, end, length, low, high, p, work,
                                   weights, part, lane);
  return attention_span_of<false>(q, keys, values, blocks, kv_head, span, begin, end, length, low, high, p, work,
                                  weights, part, lane);
}

// How two results of (largest score, sum) are brought to a common scale: factors of the first and the second. The
// first becomes their union.
static float2 attention_fold(thread float2& total, float2 next) {
  const float best = max(total.x, next.x);
  const float2 factors = float2(power_of_two(total.x - best), power_of_two(next.x - best));
  total = float2(best, fma(total.y, factors.x, next.y * factors.y));
  return factors;
}

// What sums so far and new ones are multiplied with. Where a row has nothing new, its weights are zeros and so are its
// new sums: minus zero times these changes nothing.
static float2 attention_fold_seen(thread float2& total, float2 next) {
  return next.y != 0 ? attention_fold(total, next) : float2(1.0f, -0.0f);
}

// Eight numbers as others, in 16 bytes.
template <typename C, typename T>
static uint4 attention_eight(device const T* from) {
  const uint4 bits = *(device const uint4*)from;
  uint4 out;
  MATRIX_UNROLL_WIDE for (uint i = 0; i < 4; ++i) {
    const vec<T, 2> two = MatrixPair<T>::of(bits[i]);
    out[i] = as_type<uint>(vec<C, 2>(C(float(two.x)), C(float(two.y))));
  }
  return out;
}
