// Attention over the paged cache, for decode and prefill alike.
//
// Keys are taken in spans of 64 at fixed positions. Eight query rows meet one span in one simdgroup: scores, their
// softmax and the weighted values come from the span alone; spans are then folded together in order, and so are splits
// (a fixed number of spans). Nothing depends on who else is in the batch, nor on whether a row is a decode row (where
// the eight rows are the query heads of one KV head) or a prefill row (where they are eight positions of one head): the
// same row gives the same bits.
#include "attention_cache.h"

constant constexpr uint kAttentionTiles = 4;    // of eight keys, whose loads are issued together
constant constexpr uint kMergedSplits = 8;      // whose loads are issued together
constant constexpr float kMasked = -1e30f;  // stands for minus infinity, which fast math may not know

// Rows in threadgroup memory lie a little further apart than they are long: lanes of different rows meet different banks.
constant constexpr uint kScoreStride = kSpan + 16;
constant constexpr uint kWeightStride = kSpan + 8;
constant uint ATTENTION_SUM_STRIDE = ATTENTION_HEAD_SIZE + 8;
constant uint ATTENTION_WORK = 8 * (ATTENTION_SUM_STRIDE > kScoreStride ? ATTENTION_SUM_STRIDE : kScoreStride);  // floats
constant constexpr uint kAttentionParts = 8 * kWeightStride + 256;        // weights, and a corner for cut tiles
constant uint ATTENTION_WIDTH = ATTENTION_HEAD_SIZE % 64 == 0 ? 64 : 32;  // dims taken together

// ---- one span ----

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

// sums += weights of sixteen keys times their values
template <typename C>
static void attention_weigh(thread simdgroup_float8x8* sums, threadgroup const C* weights,
                            thread const simdgroup_matrix<C, 8, 8>* v) {
  simdgroup_matrix<C, 8, 8> seen[2];
  simdgroup_load(seen[0], weights, kWeightStride);
  simdgroup_load(seen[1], weights + 8, kWeightStride);
  MATRIX_UNROLL for (uint j = 0; j < 8; ++j)
    if (j * 8 < ATTENTION_WIDTH) matrix_multiply_deep(sums[j], seen[0], seen[1], v[j * 2], v[j * 2 + 1]);
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
      MATRIX_UNROLL for (uint tile = 0; tile < kSpan / 8; ++tile)
        heads[tile] = uint(blocks[(first_key + tile * 8) / ATTENTION_BLOCK_SIZE]) * p.kv_heads + kv_head;
      MATRIX_UNROLL for (uint first = 0; first < kSpan / 8; first += kAttentionTiles) {
        simdgroup_matrix<C, 8, 8> k[kAttentionTiles][kMaxHeadSize / 8];
        MATRIX_UNROLL for (uint t = 0; t < kAttentionTiles; ++t)
          attention_load_head(k[t], keys + attention_head_offset<S>(heads[first + t], first_key + (first + t) * 8), true,
                              8, part, lane);
        simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
        MATRIX_UNROLL for (uint t = 0; t < kAttentionTiles; ++t)
          attention_score(rows, k[t], work + (first + t) * 8);
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

  // A lane has four times four keys of its row.
  const uint row = lane / 4, column = lane % 4 * 4;
  float score[16];
  float best = kMasked;
  MATRIX_UNROLL for (uint i = 0; i < 4; ++i) {
    // Scores of tiles that no row sees were not written.
    const uint first = first_key + i * 16 + column;
    float4 found = float4(0.0f);
    if (Whole || (first < high && first + 4 > low))
      found = *(threadgroup const float4*)(work + row * kScoreStride + i * 16 + column);
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
      const uint at = i * 16 + column + j;
      const bool seen = Whole || (first_key + at >= low && first_key + at < high);
      float value = seen ? found[j] * p.scale : kMasked;
      if (sizeof(S) == 1 && seen) value *= scales[at];
      score[i * 4 + j] = value;
      best = max(best, value);
    }
  }
  best = max(best, simd_shuffle_xor(best, 1));
  best = max(best, simd_shuffle_xor(best, 2));
  // The scales of a row's values may lie anywhere, its weights are halves: a power of two is taken out of the scales, and
  // added to the score that the weights are relative to.
  uint power = 127;
  if (sizeof(S) == 1) {
    float largest = 0;
    MATRIX_UNROLL for (uint i = 0; i < 16; ++i) {
      const uint at = i / 4 * 16 + column + i % 4;
      if (Whole || (first_key + at >= low && first_key + at < high)) largest = max(largest, scales[kSpan + at]);
    }
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    if (largest > 0) power = as_type<uint>(largest) >> 23;
  }
  const float inverse = as_type<float>((254 - power) << 23);
  float sum = 0;
  MATRIX_UNROLL for (uint i = 0; i < 4; ++i) {
    vec<C, 4> four;
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
      const uint at = i * 16 + column + j;
      const bool seen = Whole || (first_key + at >= low && first_key + at < high);
      const float exact = seen ? exp2(score[i * 4 + j] - best) : 0.0f;
      const C weight = C(sizeof(S) == 1 && seen ? exact * (scales[kSpan + at] * inverse) : exact);
      four[j] = weight;
      sum += sizeof(S) == 1 ? exact : float(weight);
    }
    *(threadgroup vec<C, 4>*)(weights + row * kWeightStride + i * 16 + column) = four;
  }
  sum += simd_shuffle_xor(sum, 1);
  sum += simd_shuffle_xor(sum, 2);
  if (sizeof(S) == 1) {
    sum *= inverse;
    best += float(int(power) - 127);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);

  if (wide) {
    // Keys by sixteen at fixed places; weights of keys that are not seen are zero, and so are values that are not there.
    MATRIX_UNROLL for (uint dim = 0; dim < ATTENTION_HEAD_SIZE; dim += ATTENTION_WIDTH) {
      simdgroup_float8x8 sums[8];
      MATRIX_UNROLL for (uint j = 0; j < 8; ++j) sums[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      if (Whole) {
        MATRIX_UNROLL for (uint first = 0; first < kSpan / 8; first += 4) {
          if (dim + first > 0) attention_load_values(v, values, heads, first_key, first, dim, part, lane);
          simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
          MATRIX_UNROLL for (uint pair = 0; pair < 2; ++pair)
            attention_weigh(sums, weights + (first + pair * 2) * 8, v[pair]);
        }
      } else {
        MATRIX_ROLLED for (uint tile = first_tile / 2 * 2; tile < last_tile; tile += 2) {
          ulong offsets[2];
          uint counts[2];
          MATRIX_UNROLL for (uint i = 0; i < 2; ++i) {
            const uint key = first_key + (tile + i) * 8;
            const bool there = tile + i >= first_tile && tile + i < last_tile;
            counts[i] = there ? min(length - key, 8u) : 0;
            offsets[i] = there ? attention_tile_offset<S>(blocks, p.kv_heads, kv_head, key) : 0;
          }
          matrix_load_right(v[0], values + offsets[0] + dim, values + offsets[1] + dim, ATTENTION_HEAD_SIZE,
                            ATTENTION_WIDTH, counts[0], counts[1], part, lane);
          attention_weigh(sums, weights + tile * 8, v[0]);
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
                       min(length - key, 8u), part, lane);
        MATRIX_UNROLL for (uint j = 0; j < 4; ++j)
          if (j * 8 < dims) simdgroup_multiply_accumulate(sums[j], a, b[j], sums[j]);
      }
      MATRIX_UNROLL for (uint j = 0; j < 4; ++j)
        if (j * 8 < dims) simdgroup_store(sums[j], work + d + j * 8, ATTENTION_SUM_STRIDE);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  return float2(best, sum);
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
  const float2 factors = float2(exp2(total.x - best), exp2(next.x - best));
  total = float2(best, fma(total.y, factors.x, next.y * factors.y));
  return factors;
}

// ---- decode ----

// A threadgroup is one split of one KV head of one sequence. Rotates the query heads; the last split also rotates and
// writes the new K and V. Results go to `out`, or to `partial` when the sequence has several splits.
template <typename T, typename S>
[[kernel]] void decode_attention(device const T* qkv [[buffer(0)]],  // [T, heads + 2 kv heads, head size]
                                 device const float2* rope [[buffer(1)]],
                                 device S* keys [[buffer(2)]],
                                 device S* values [[buffer(3)]],
                                 device const int* block_table [[buffer(4)]],  // [S, max blocks]
                                 device const int* seq_lens [[buffer(5)]],     // [S]
                                 device T* out [[buffer(6)]],                  // [T, heads, head size]
                                 device float* partial [[buffer(7)]],          // [D, heads, splits, head size]
                                 device float2* partial_sums [[buffer(8)]],    // [D, heads, splits]
                                 device const float* q_norm [[buffer(9), function_constant(ATTENTION_QK_NORM)]],
                                 device const float* k_norm [[buffer(10), function_constant(ATTENTION_QK_NORM)]],
                                 constant AttentionParams& p [[buffer(11)]],
                                 threadgroup float* memory [[threadgroup(0)]],
                                 uint3 group [[threadgroup_position_in_grid]],  // KV head, sequence, split
                                 uint thread_index [[thread_index_in_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  threadgroup float2 span_sums[8 * 8];
  const uint kv_head = group.x, seq = group.y, split = group.z, group_size = p.heads / p.kv_heads;
  const uint length = uint(seq_lens[seq]);
  const uint low = ATTENTION_WINDOW > 0 && length > ATTENTION_WINDOW ? length - ATTENTION_WINDOW : 0;
  const uint first_split = low / p.split, last_split = (length - 1) / p.split;
  if (split < first_split || split > last_split) return;

  const uint width = (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
  device const T* row_qkv = qkv + ulong(seq) * width;
  device const float2* row_rope = rope + ulong(seq) * (p.rope_dims / 2);
  device const int* blocks = block_table + ulong(seq) * p.max_blocks;

  if (split == last_split) {
    const ulong slot = attention_slot(blocks, length - 1);
    device const T* k = row_qkv + (p.heads + kv_head) * ATTENTION_HEAD_SIZE;
    if (simdgroup == 0) attention_write_key(k, k_norm, row_rope, p, lane, keys, slot, kv_head);
    if (simdgroup == ATTENTION_SIMDGROUPS - 1)
      attention_write_value(k + p.kv_heads * ATTENTION_HEAD_SIZE, p, lane, values, slot, kv_head);
  }

  // Threadgroup memory: q, then for each simdgroup its work, weights and part.
  threadgroup C* q = (threadgroup C*)memory;
  const uint q_floats = 8 * ATTENTION_HEAD_SIZE * sizeof(C) / 4;
  const uint own_floats = ATTENTION_WORK + kAttentionParts * sizeof(C) / 4;
  threadgroup float* works = memory + q_floats;
  threadgroup float* work = works + simdgroup * own_floats;
  threadgroup C* weights = (threadgroup C*)(work + ATTENTION_WORK);
  threadgroup C* part = weights + 8 * kWeightStride;

  const uint begin = max(low, split * p.split);
  const uint end = min(length, (split + 1) * p.split);
  const uint threads_a_row = ATTENTION_SIMDGROUPS * 4;
  const uint row = thread_index / threads_a_row, column = thread_index % threads_a_row;

  for (uint first_head = 0; first_head < group_size; first_head += 8) {
    for (uint g = simdgroup; g < 8; g += ATTENTION_SIMDGROUPS) {
      const uint head = kv_head * group_size + first_head + g;
      if (first_head + g < group_size) {
        attention_rotate<T, C>(row_qkv + head * ATTENTION_HEAD_SIZE, q_norm, row_rope, p, lane,
                               q + g * ATTENTION_HEAD_SIZE);
      } else {
        for (uint d = lane; d < ATTENTION_HEAD_SIZE; d += 32) q[g * ATTENTION_HEAD_SIZE + d] = C(0);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);

    float2 total = float2(kMasked, 0);
    float sums[kMaxHeadSize / 4];
    for (uint j = 0; j * threads_a_row < ATTENTION_HEAD_SIZE; ++j) sums[j] = 0;
    const uint spans_end = (end + kSpan - 1) / kSpan;
    for (uint base = begin / kSpan; base < spans_end; base += ATTENTION_SIMDGROUPS) {
      const uint span = base + simdgroup;
      float2 result = float2(kMasked, 0);
      if (span < spans_end)
        result = attention_span<S>(q, (device const S*)keys, (device const S*)values, blocks, kv_head, span, begin, end,
                                   length, begin, end, begin, end, p, work, weights, part, lane);
      if (lane % 4 == 0) span_sums[simdgroup * 8 + lane / 4] = result;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint i = 0; i < ATTENTION_SIMDGROUPS; ++i) {
        const float2 next = span_sums[i * 8 + row];
        if (next.y == 0) continue;
        const float2 factors = attention_fold(total, next);
        for (uint j = 0; j * threads_a_row < ATTENTION_HEAD_SIZE; ++j) {
          const uint d = column + j * threads_a_row;
          if (d < ATTENTION_HEAD_SIZE)
            sums[j] = fma(sums[j], factors.x, works[i * own_floats + row * ATTENTION_SUM_STRIDE + d] * factors.y);
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }

    if (first_head + row < group_size) {
      const uint head = kv_head * group_size + first_head + row;
      const ulong at = ulong(seq) * p.heads + head;
      for (uint j = 0; j * threads_a_row < ATTENTION_HEAD_SIZE; ++j) {
        const uint d = column + j * threads_a_row;
        if (d >= ATTENTION_HEAD_SIZE) continue;
        if (first_split == last_split) {
          out[at * ATTENTION_HEAD_SIZE + d] = T(sums[j] / total.y);
        } else {
          partial[(at * p.max_splits + split) * ATTENTION_HEAD_SIZE + d] = sums[j];
        }
      }
      if (first_split != last_split && column == 0) partial_sums[at * p.max_splits + split] = total;
    }
  }
}

// Folds the splits of long sequences together, in order. One threadgroup a head of a decode row, a thread an element.
template <typename T>
[[kernel]] void decode_attention_merge(device const int* seq_lens [[buffer(0)]],
                                       device const float* partial [[buffer(1)]],        // [D, heads, splits, head size]
                                       device const float2* partial_sums [[buffer(2)]],  // [D, heads, splits]
                                       device T* out [[buffer(3)]],                      // [T, heads, head size]
                                       constant AttentionParams& p [[buffer(4)]],
                                       uint2 group [[threadgroup_position_in_grid]],  // head, sequence
                                       uint d [[thread_index_in_threadgroup]]) {
  const uint length = uint(seq_lens[group.y]);
  const uint low = ATTENTION_WINDOW > 0 && length > ATTENTION_WINDOW ? length - ATTENTION_WINDOW : 0;
  const uint first_split = low / p.split, last_split = (length - 1) / p.split;
  if (first_split == last_split || d >= ATTENTION_HEAD_SIZE) return;
  const ulong at = ulong(group.y) * p.heads + group.x;
  float2 total = float2(kMasked, 0);
  float sum = 0;
  for (uint first = first_split; first <= last_split; first += kMergedSplits) {
    float2 totals[kMergedSplits];
    float sums[kMergedSplits];
    MATRIX_UNROLL for (uint i = 0; i < kMergedSplits; ++i) {
      if (first + i <= last_split) {
        totals[i] = partial_sums[at * p.max_splits + first + i];
        sums[i] = partial[(at * p.max_splits + first + i) * ATTENTION_HEAD_SIZE + d];
      }
    }
    MATRIX_UNROLL for (uint i = 0; i < kMergedSplits; ++i) {
      if (first + i <= last_split) {
        const float2 factors = attention_fold(total, totals[i]);
        sum = fma(sum, factors.x, sums[i] * factors.y);
      }
    }
  }
  out[at * ATTENTION_HEAD_SIZE + d] = T(sum / total.y);
}

// ---- prefill ----

// Rotates q in place, rotates and writes k, writes v. One simdgroup a head, four a threadgroup.
template <typename T, typename S>
[[kernel]] void prefill_write(device T* qkv [[buffer(0)]],
                              device const float2* rope [[buffer(1)]],
                              device S* keys [[buffer(2)]],
                              device S* values [[buffer(3)]],
                              device const long* slots [[buffer(4)]],  // [T]
                              device const float* q_norm [[buffer(5), function_constant(ATTENTION_QK_NORM)]],
                              device const float* k_norm [[buffer(6), function_constant(ATTENTION_QK_NORM)]],
                              constant AttentionParams& p [[buffer(7)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint head = group.x * 4 + simdgroup;
  const uint heads = p.heads + 2 * p.kv_heads;
  if (head >= heads) return;
  const ulong t = p.first_row + group.y;
  device T* x = qkv + (t * heads + head) * ATTENTION_HEAD_SIZE;
  device const float2* row_rope = rope + t * (p.rope_dims / 2);
  if (head < p.heads) {
    attention_rotate<T, T>((device const T*)x, q_norm, row_rope, p, lane, x);
    return;
  }
  const ulong slot = ulong(slots[t]);
  const uint kv_head = (head - p.heads) % p.kv_heads;
  if (head < p.heads + p.kv_heads) {
    attention_write_key((device const T*)x, k_norm, row_rope, p, lane, keys, slot, kv_head);
  } else {
    attention_write_value((device const T*)x, p, lane, values, slot, kv_head);
  }
}

// A simdgroup is eight consecutive query rows of one head; the simdgroups of a threadgroup are neighbours, so that the
// keys and values one loads are in the cache for the others.
template <typename T, typename S>
[[kernel]] void prefill_attention(device const T* qkv [[buffer(0)]],
                                  device const S* keys [[buffer(1)]],
                                  device const S* values [[buffer(2)]],
                                  device const int* block_table [[buffer(3)]],
                                  device const int* query_start [[buffer(4)]],  // [S + 1]
                                  device const int* seq_lens [[buffer(5)]],
                                  device T* out [[buffer(6)]],
                                  constant AttentionParams& p [[buffer(7)]],
                                  threadgroup float* memory [[threadgroup(0)]],
                                  uint3 group [[threadgroup_position_in_grid]],  // tile, head, sequence
                                  uint lane [[thread_index_in_simdgroup]],
                                  uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  const uint seq = p.first_seq + group.z, head = group.y, kv_head = head / (p.heads / p.kv_heads);
  const uint first_row = uint(query_start[seq]);
  const uint rows = uint(query_start[seq + 1]) - first_row;
  const uint tile_row = ((p.first_tile + group.x) * ATTENTION_SIMDGROUPS + simdgroup) * 8;
  if (tile_row >= rows) return;
  const uint tile_rows = min(8u, rows - tile_row);
  const uint length = uint(seq_lens[seq]);
  const uint position = length - rows + tile_row;  // of the first row
  device const int* blocks = block_table + ulong(seq) * p.max_blocks;

  const uint q_floats = 8 * ATTENTION_HEAD_SIZE * sizeof(C) / 4;
  const uint own_floats = q_floats + ATTENTION_WORK + kAttentionParts * sizeof(C) / 4;
  threadgroup float* own = memory + simdgroup * own_floats;
  threadgroup C* q = (threadgroup C*)own;
  threadgroup float* work = own + q_floats;
  threadgroup C* weights = (threadgroup C*)(work + ATTENTION_WORK);
  threadgroup C* part = weights + 8 * kWeightStride;

  const uint width = (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
  device const T* x = qkv + ulong(first_row + tile_row) * width + head * ATTENTION_HEAD_SIZE;
  for (uint i = lane; i < 8 * ATTENTION_HEAD_SIZE; i += 32) {
    const uint r = i / ATTENTION_HEAD_SIZE, d = i % ATTENTION_HEAD_SIZE;
    q[i] = r < tile_rows ? C(float(x[ulong(r) * width + d])) : C(0);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);

  const uint row = lane / 4, column = lane % 4;
  const uint high = row < tile_rows ? position + row + 1 : 0;
  const uint low = ATTENTION_WINDOW > 0 && high > ATTENTION_WINDOW ? high - ATTENTION_WINDOW : 0;
  const uint begin = ATTENTION_WINDOW > 0 && position + 1 > ATTENTION_WINDOW ? position + 1 - ATTENTION_WINDOW : 0;
  const uint end = position + tile_rows;
  // What all rows see: up to the first one's own key, from where the last one's window begins.
  const uint whole_to = tile_rows == 8 ? position + 1 : 0;
  const uint whole_from = ATTENTION_WINDOW > 0 && end > ATTENTION_WINDOW ? end - ATTENTION_WINDOW : 0;

  float2 total = float2(kMasked, 0), split_total = float2(kMasked, 0);
  float sums[kMaxHeadSize / 4], split_sums[kMaxHeadSize / 4];
  for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) sums[j] = split_sums[j] = 0;
  const uint spans_end = (end + kSpan - 1) / kSpan;
  for (uint span = begin / kSpan; span < spans_end; ++span) {
    const float2 next = attention_span<S>(q, keys, values, blocks, kv_head, span, begin, end, length, low, high,
                                          whole_from, whole_to, p, work, weights, part, lane);
    if (next.y != 0) {
      const float2 factors = attention_fold(split_total, next);
      for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j)
        split_sums[j] = fma(split_sums[j], factors.x, work[row * ATTENTION_SUM_STRIDE + column + j * 4] * factors.y);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if ((span + 1) * kSpan % p.split != 0 && span + 1 != spans_end) continue;
    if (split_total.y != 0) {
      const float2 factors = attention_fold(total, split_total);
      for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) {
        sums[j] = fma(sums[j], factors.x, split_sums[j] * factors.y);
        split_sums[j] = 0;
      }
    }
    split_total = float2(kMasked, 0);
  }
  if (row < tile_rows) {
    device T* y = out + (ulong(first_row + tile_row + row) * p.heads + head) * ATTENTION_HEAD_SIZE;
    for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) y[column + j * 4] = T(sums[j] / total.y);
  }
}

// clang-format off
#define ATTENTION_KERNELS(activation, T, cache, S)                                                              \
  template [[host_name("decode_attention_" #activation "_" #cache)]] [[kernel]]                                 \
  decltype(decode_attention<T, S>) decode_attention<T, S>;                                                      \
  template [[host_name("prefill_write_" #activation "_" #cache)]] [[kernel]]                                    \
  decltype(prefill_write<T, S>) prefill_write<T, S>;                                                            \
  template [[host_name("prefill_attention_" #activation "_" #cache)]] [[kernel]]                                \
  decltype(prefill_attention<T, S>) prefill_attention<T, S>;
// clang-format on

ATTENTION_KERNELS(f16, half, f16, half)
ATTENTION_KERNELS(f16, half, int8, int8_t)
ATTENTION_KERNELS(f16, half, f32, float)
template [[host_name("decode_attention_merge_f16")]] [[kernel]] decltype(decode_attention_merge<half>)
    decode_attention_merge<half>;
#if INGOT_BFLOAT
ATTENTION_KERNELS(f16, half, bf16, bfloat)
ATTENTION_KERNELS(bf16, bfloat, f16, half)
ATTENTION_KERNELS(bf16, bfloat, bf16, bfloat)
ATTENTION_KERNELS(bf16, bfloat, int8, int8_t)
ATTENTION_KERNELS(bf16, bfloat, f32, float)
template [[host_name("decode_attention_merge_bf16")]] [[kernel]] decltype(decode_attention_merge<bfloat>)
    decode_attention_merge<bfloat>;
#endif
