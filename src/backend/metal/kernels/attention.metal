// Attention over the paged cache, for decode and prefill alike.
//
// Keys are taken in spans of 64 at fixed positions. Eight query rows meet one span in one simdgroup: scores, their
// softmax and the weighted values come from the span alone; spans are then folded together in order, and so are splits
// (a fixed number of spans). Nothing depends on who else is in the batch, nor on whether a row is a decode row (where
// the eight rows are the query heads of one KV head) or a prefill row (where they are eight positions of one head): the
// same row gives the same bits.
#include "attention_span.h"

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
  const uint kv_head = group.x, seq = group.y, split = group.z;
  const uint first_query = attention_first_query(p, kv_head), group_size = attention_queries(p, kv_head);
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
      const uint head = first_query + first_head + g;
      if (first_head + g < group_size) {
        AttentionStore<C> store = {q + g * ATTENTION_HEAD_SIZE};
        attention_rotate_into<T>(row_qkv + head * ATTENTION_HEAD_SIZE, q_norm, row_rope, p, lane, store);
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
      const uint head = first_query + first_head + row;
      const ulong at = ulong(seq) * p.heads + head;
      for (uint j = 0; j * threads_a_row < ATTENTION_HEAD_SIZE; ++j) {
        const uint d = column + j * threads_a_row;
        if (d >= ATTENTION_HEAD_SIZE) continue;
        if (first_split == last_split) {
          out[at * ATTENTION_HEAD_SIZE + d] = T(sums[j] / total.y);
        } else {
          partial[(at * p.max_pieces + split) * ATTENTION_HEAD_SIZE + d] = sums[j];
        }
      }
      if (first_split != last_split && column == 0) partial_sums[at * p.max_pieces + split] = total;
    }
  }
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
    attention_rotate<T>((device const T*)x, q_norm, row_rope, p, lane, x);
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
  const uint seq = p.first_seq + group.z, head = group.y, kv_head = (head + p.skipped) / p.group;
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
  const uint tile_end = position + tile_rows;
  // What all rows see: up to the first one's own key, from where the last one's window begins.
  const uint whole_to = tile_rows == 8 ? position + 1 : 0;
  const uint whole_from = ATTENTION_WINDOW > 0 && tile_end > ATTENTION_WINDOW ? tile_end - ATTENTION_WINDOW : 0;

  // A row's weights of keys that it does not see are zero, which a NaN or an infinity of theirs survives. So where a
  // result is not finite, each row is taken again by itself, without what comes after its own key or before its window.
  for (uint alone = 8;;) {  // 8: all rows together
    const uint end = alone < 8 ? position + alone + 1 : tile_end;
    const uint there = alone < 8 ? end : length;
    const uint own_begin = ATTENTION_WINDOW > 0 && end > ATTENTION_WINDOW ? end - ATTENTION_WINDOW : 0;
    const uint from = alone < 8 ? own_begin : begin;
    float2 total = float2(kMasked, 0), split_total = float2(kMasked, 0);
    float sums[kMaxHeadSize / 4], split_sums[kMaxHeadSize / 4];
    for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) sums[j] = split_sums[j] = 0;
    const uint spans_end = (end + kSpan - 1) / kSpan;
    for (uint span = from / kSpan; span < spans_end; ++span) {
      const float2 next = attention_span<S>(q, keys, values, blocks, kv_head, span, from, end, there, low,
                                            min(high, end), whole_from, whole_to, p, work, weights, part, lane);
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
    if (alone == 8 && tile_rows > 1) {
      // By its bits, as fast math may not know such numbers.
      constexpr uint kExponent = 0x7f800000;
      uint most = 0;
      for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) most = max(most, as_type<uint>(sums[j]) & kExponent);
      if (simd_any(most == kExponent)) {
        alone = 0;
        continue;
      }
    }
    if (row < tile_rows && (alone == 8 || alone == row)) {
      device T* y = out + (ulong(first_row + tile_row + row) * p.heads + head) * ATTENTION_HEAD_SIZE;
      for (uint j = 0; j < ATTENTION_HEAD_SIZE / 4; ++j) y[column + j * 4] = T(sums[j] / total.y);
    }
    if (alone == 8 || ++alone == tile_rows) return;
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
#if INGOT_BFLOAT
ATTENTION_KERNELS(f16, half, bf16, bfloat)
ATTENTION_KERNELS(bf16, bfloat, f16, half)
ATTENTION_KERNELS(bf16, bfloat, bf16, bfloat)
ATTENTION_KERNELS(bf16, bfloat, int8, int8_t)
ATTENTION_KERNELS(bf16, bfloat, f32, float)
#endif
