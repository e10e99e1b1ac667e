// Decode attention for heads of 64, 128 and 256 dims in numbers of 16 bits or less, at most eight of them a KV head.
// The simdgroups of a threadgroup share a span: each takes some of its keys for the scores and some of the dims for the
// values, all of them loaded at once. The sums and their order are those of attention_span.h.
#include "attention_span.h"

constant constexpr uint kMergedPieces = 16;  // whose loads are issued together
constant constexpr uint kFoldedPieces = 4;   // without a branch between them
constant constexpr uint kDecodeScores = 8 * kScoreStride + 2 * kSpan;  // floats: scores of a span, then its scales

// Where the keys of a span lie. Keys outside [begin, end) are not looked up, and zeros where they would be loaded.
struct DecodePlace {
  uint first_key;
  uint begin, end;
  uint head;  // lane t: block and KV head of tile t of eight keys, counted in those

  bool whole() const thread { return first_key >= begin && first_key + kSpan <= end; }
  uint count(uint at) const thread {
    const uint key = first_key + at;
    return key + 8 > begin && key < end ? min(end - key, 8u) : 0;
  }
  // The same of values: see attention_rows.
  uint rows(uint at) const thread {
    const uint key = first_key + at;
    return key + 8 > begin && key < end ? attention_rows(key, begin, end) : 0;
  }
  void find(device const int* blocks, uint kv_heads, uint kv_head, uint lane) thread {
    const uint keys = ATTENTION_BLOCK_SIZE % 16 == 0 ? 16 : 8;  // that surely lie together
    const uint key = first_key + lane % 8 * 8 / keys * keys;
    head = key + keys > begin && key < end ? uint(blocks[key / ATTENTION_BLOCK_SIZE]) * kv_heads + kv_head : 0;
  }
  // The tile whose first key is `at` keys from the span's. Called by a whole simdgroup.
  template <typename S>
  device const S* tile(device const S* from, uint at) const thread {
    return from + attention_head_offset<S>(simd_shuffle(head, at / 8),
                                           kSpan % ATTENTION_BLOCK_SIZE == 0 ? at : first_key + at);
  }
  // The one behind the tile at `first`, eight keys from `at` on, `at` being a multiple of sixteen.
  template <typename S>
  device const S* second_tile(device const S* from, device const S* first, uint at) const thread {
    return ATTENTION_BLOCK_SIZE % 16 == 0 ? first + 8 * ATTENTION_HEAD_SIZE : tile(from, at + 8);
  }
  // For what takes tiles: where they have been fetched, it does not look.
  template <typename S>
  device const S* fetched_tile(device const S* from, uint at) const thread {
    return kWideMatrices ? from : tile(from, at);
  }
};

// What a simdgroup loads of a span: some keys, all dims; all keys, some dims of the values.
template <typename S, typename C>
struct DecodeSpan {
  uint k[8][kMaxHeadSize / 64][8];
  uint v[4][16];

  // Only tiles that have key `needed`, where there is one.
  template <bool Whole>
  void fetch_keys(DecodePlace place, device const S* keys, uint own_key, uint needed = ~0u) thread {
    MATRIX_UNROLL for (uint t = 0; t < 8 / ATTENTION_SIMDGROUPS; ++t) {
      const uint at = own_key + t * 8;
      if (needed != ~0u && needed / 8 != (place.first_key + at) / 8) continue;
      device const S* from = place.tile(keys, at);
      MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE / 64; ++d)
        matrix_fetch_lines(k[t][d], from + d * 64, ATTENTION_HEAD_SIZE, Whole ? 8 : place.count(at));
    }
  }
  template <bool Whole>
  void fetch_values(DecodePlace place, device const S* values, uint dim, uint width, uint needed = ~0u) thread {
    MATRIX_UNROLL for (uint pair = 0; pair < 4; ++pair) {
      const uint at = pair * 16;
      if (needed != ~0u && needed / 16 != (place.first_key + at) / 16) continue;
      device const S* first = place.tile(values, at) + dim;
      matrix_fetch_right(v[pair], first, place.second_tile(values + dim, first, at), ATTENTION_HEAD_SIZE, width,
                         Whole ? 8 : place.rows(at), Whole ? 8 : place.rows(at + 8));
    }
  }
  // A key that has been written since, `at` keys from the first, and its value: [head size] each.
  void patch(threadgroup const S* key, threadgroup const S* value, uint own_key, uint dim, uint width, uint at) thread {
    MATRIX_UNROLL for (uint t = 0; t < 8 / ATTENTION_SIMDGROUPS; ++t)
      if (at / 8 == own_key / 8 + t)
        MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE / 64; ++d)
          matrix_patch_lines(k[t][d], key + d * 64, at % 8);
    MATRIX_UNROLL for (uint pair = 0; pair < 4; ++pair)
      if (at / 16 == pair) matrix_patch_right(v[pair], value + dim, width, at % 16);
  }
  // The two that follow where nothing has been fetched: as many loads at once as there are registers for.
  void score_in_turns(DecodePlace place, device const S* keys, threadgroup const C* q, uint own_key,
                      threadgroup float* scores, threadgroup C* part, uint lane) const thread {
    MATRIX_ROLLED for (uint at = own_key; at < own_key + kSpan / ATTENTION_SIMDGROUPS; at += 8) {
      device const S* from = place.tile(keys, at);
      simdgroup_float8x8 sums = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      MATRIX_ROLLED for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += 64) {
        simdgroup_matrix<C, 8, 8> row, tile[8];
        attention_load(tile, from + d, true, 32, place.count(at), part, lane);
        attention_load(tile + 4, from + d + 32, true, 32, place.count(at), part, lane);
        MATRIX_UNROLL for (uint j = 0; j < 8; ++j) {
          simdgroup_load(row, q + d + j * 8, ATTENTION_HEAD_SIZE);
          simdgroup_multiply_accumulate(sums, row, tile[j], sums);
        }
      }
      simdgroup_store(sums, scores + at, kScoreStride);
    }
  }
  void weigh_in_turns(DecodePlace place, device const S* values, threadgroup const C* weights, uint dim, uint width,
                      thread simdgroup_float8x8* sums, threadgroup C* part, uint lane) const thread {
    MATRIX_ROLLED for (uint first = 0; first < kSpan; first += 16) {
      simdgroup_matrix<C, 8, 8> seen, tiles[2][8];
      MATRIX_UNROLL for (uint t = 0; t < 2; ++t) {
        const uint at = first + t * 8;
        device const S* from = place.tile(values, at) + dim;
        MATRIX_UNROLL for (uint c = 0; c < 2; ++c) if (c * 32 < width)
            attention_load(tiles[t] + c * 4, from + c * 32, false, 32, place.rows(at), part, lane);
      }
      MATRIX_UNROLL for (uint t = 0; t < 2; ++t) {
        simdgroup_load(seen, weights + first + t * 8, kWeightStride);
        MATRIX_UNROLL for (uint j = 0; j < 8; ++j) if (j * 8 < width)
            simdgroup_multiply_accumulate(sums[j], seen, tiles[t][j], sums[j]);
      }
    }
  }
  // Scores of the simdgroup's keys, sixteen at a time, 64 dims after 64.
  void score(DecodePlace place, device const S* keys, threadgroup const C* q, uint own_key, threadgroup float* scores,
             threadgroup C* part, uint lane) const thread {
    if (!kWideMatrices) return score_in_turns(place, keys, q, own_key, scores, part, lane);
    MATRIX_UNROLL for (uint first = 0; first < 8 / ATTENTION_SIMDGROUPS; first += 2) {
      const uint at = own_key + first * 8;
      simdgroup_float8x8 sums[2];
      matrix_clear_broad(sums[0]);
      matrix_clear_broad(sums[1]);
      MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE / 64; ++d) {
        simdgroup_matrix<C, 8, 8> rows[8], tiles[2][8];
        matrix_load_lines(rows, q + d * 64, ATTENTION_HEAD_SIZE, false, 8, part, lane);
        MATRIX_UNROLL for (uint t = 0; t < 2; ++t)
          matrix_take_lines(tiles[t], k[first + t][d], place.fetched_tile(keys, at + t * 8) + d * 64, ATTENTION_HEAD_SIZE,
                            true, place.count(at + t * 8), part, lane);
        MATRIX_UNROLL for (uint j = 0; j < 8; j += 2)
          matrix_multiply_broad(sums[0], sums[1], rows[j], rows[j + 1], tiles[0][j], tiles[0][j + 1], tiles[1][j],
                                tiles[1][j + 1]);
      }
      simdgroup_store(sums[0], scores + at, kScoreStride);
      simdgroup_store(sums[1], scores + at + 8, kScoreStride);
    }
  }
  void weigh(DecodePlace place, device const S* values, threadgroup const C* weights, uint dim, uint width,
             thread simdgroup_float8x8* sums, threadgroup C* part, uint lane) const thread {
    if (!kWideMatrices) return weigh_in_turns(place, values, weights, dim, width, sums, part, lane);
    MATRIX_UNROLL for (uint pair = 0; pair < 4; ++pair) {
      const uint at = pair * 16;
      simdgroup_matrix<C, 8, 8> tiles[16];
      matrix_take_right(tiles, v[pair], place.fetched_tile(values, at) + dim, place.fetched_tile(values, at + 8) + dim,
                        ATTENTION_HEAD_SIZE, width, place.rows(at), place.rows(at + 8), part, lane);
      attention_weigh(sums, weights + at, tiles, width);
    }
  }
};

// A threadgroup is one piece of one KV head of one sequence: a span, a split, or the whole of it. Rotates the query heads;
// the last piece also rotates and writes the new K and V. Results go to `out`, or to `partial` when the sequence has
// several pieces. Threads: as many as must find registers on a multiprocessor at the least.
template <typename T, typename S, uint Threads>
[[kernel, max_total_threads_per_threadgroup(Threads)]] STARTS_EARLY void decode_attention_shared(
    device const T* qkv [[buffer(0)]],  // [T, heads + 2 kv heads, head size]
    device const float2* rope [[buffer(1)]],
    device S* keys [[buffer(2)]],
    device S* values [[buffer(3)]],
    device const int* block_table [[buffer(4)]],  // [S, max blocks]
    device const int* seq_lens [[buffer(5)]],     // [S]
    device T* out [[buffer(6)]],                  // [T, heads, head size]
    device float* partial [[buffer(7)]],          // [D, heads, pieces, head size]
    device float2* partial_sums [[buffer(8)]],    // [D, heads, pieces]
    device const float* q_norm [[buffer(9), function_constant(ATTENTION_QK_NORM)]],
    device const float* k_norm [[buffer(10), function_constant(ATTENTION_QK_NORM)]],
    constant AttentionParams& p [[buffer(11)]],
    threadgroup float* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]],  // KV head, sequence, piece
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  const uint kv_head = group.x, seq = group.y, piece = group.z;
  const uint first_query = attention_first_query(p, kv_head), group_size = attention_queries(p, kv_head);
  // The inputs of a step are there before its first dispatch.
  const uint length = uint(seq_lens[seq]);
  const uint low = ATTENTION_WINDOW > 0 && length > ATTENTION_WINDOW ? length - ATTENTION_WINDOW : 0;
  const uint piece_keys = ATTENTION_ONE_SPAN ? kSpan : p.piece;
  const uint first_piece = low / piece_keys, last_piece = (length - 1) / piece_keys;
  if (piece < first_piece || piece > last_piece) return wait_for_dispatches();
  device const int* blocks = block_table + ulong(seq) * p.max_blocks;

  // Threadgroup memory: q, the new key and value, scores and scales twice (one span writes them while the one before
  // still reads), then for each simdgroup its sums, weights and a corner for cut tiles.
  const uint width = ATTENTION_HEAD_SIZE / ATTENTION_SIMDGROUPS;  // dims of a simdgroup, 32 or 64
  const uint sum_stride = width + 4;
  threadgroup C* q = (threadgroup C*)memory;
  threadgroup C* new_key = q + 8 * ATTENTION_HEAD_SIZE;  // of the cache's numbers, if they are no integers
  threadgroup C* new_value = new_key + ATTENTION_HEAD_SIZE;
  threadgroup float* scores = memory + 10 * ATTENTION_HEAD_SIZE * sizeof(C) / 4;
  const uint own_floats = kAttentionParts * sizeof(C) / 4 + 8 * sum_stride;
  threadgroup float* own_sums = scores + 2 * kDecodeScores + simdgroup * own_floats;
  threadgroup C* weights = (threadgroup C*)(own_sums + 8 * sum_stride);
  threadgroup C* part = weights + 8 * kWeightStride;

  const uint own_key = kSpan / ATTENTION_SIMDGROUPS * simdgroup, own_dim = width * simdgroup;
  DecodePlace place;
  place.begin = max(low, piece * piece_keys);
  place.end = min(length, (piece + 1) * piece_keys);
  place.first_key = place.begin / kSpan * kSpan;
  place.find(blocks, p.kv_heads, kv_head, lane);
  const uint spans_end = (place.end + kSpan - 1) / kSpan;
  DecodeSpan<S, C> span;
  // Keys of earlier steps first. The new one, where it is among these, is not there yet.
  DecodePlace old = place;
  old.end = min(place.end, length - 1);
  if (!p.cache_ready) wait_for_dispatches();
  if (old.whole()) {
    span.template fetch_keys<true>(old, keys, own_key);
    span.template fetch_values<true>(old, values, own_dim, width);
  } else {
    span.template fetch_keys<false>(old, keys, own_key);
    span.template fetch_values<false>(old, values, own_dim, width);
  }
  if (p.cache_ready) wait_for_dispatches();

  device const T* row_qkv = qkv + ulong(seq) * (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
  device const T* row_q = row_qkv + first_query * ATTENTION_HEAD_SIZE;
  device const float2* row_rope = rope + ulong(seq) * (p.rope_dims / 2);
  AttentionTurns turns;
  AttentionHead<T> heads[8];
  if (ATTENTION_TURNED) {
    turns.load(row_rope, lane);
    MATRIX_UNROLL for (uint i = 0; i < 8 / ATTENTION_SIMDGROUPS; ++i) {
      const uint g = i * ATTENTION_SIMDGROUPS + simdgroup;
      if (g < group_size) heads[i].load(row_q + g * ATTENTION_HEAD_SIZE, lane);
    }
  }
  if (piece == last_piece) {
    const ulong slot = attention_slot(blocks, length - 1);
    device const T* k = row_qkv + (p.heads + kv_head) * ATTENTION_HEAD_SIZE;
    if (simdgroup == 0) attention_write_key(k, k_norm, row_rope, p, lane, keys, slot, kv_head, new_key);
    if (simdgroup == ATTENTION_SIMDGROUPS - 1)
      attention_write_value(k + p.kv_heads * ATTENTION_HEAD_SIZE, p, lane, values, slot, kv_head, new_value);
  }
  MATRIX_UNROLL for (uint i = 0; i < 8 / ATTENTION_SIMDGROUPS; ++i) {
    const uint g = i * ATTENTION_SIMDGROUPS + simdgroup;
    AttentionStore<C> store = {q + g * ATTENTION_HEAD_SIZE};
    if (g >= group_size) {
      MATRIX_UNROLL for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += 32) store.take(d + lane, 0.0f);
    } else if (ATTENTION_TURNED) {
      heads[i].template rotate<T>(q_norm, turns, p.norm_eps, lane, store);
    } else {
      attention_rotate_into<T>(row_q + g * ATTENTION_HEAD_SIZE, q_norm, row_rope, p, lane, store);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  const uint fresh = length - 1 - place.first_key;
  if (fresh < kSpan && sizeof(S) == 1) {  // its scale is in the cache, too
    span.template fetch_keys<false>(place, keys, own_key, length - 1);
    span.template fetch_values<false>(place, values, own_dim, width, length - 1);
  } else if (fresh < kSpan) {
    span.patch((threadgroup const S*)new_key, (threadgroup const S*)new_value, own_key, own_dim, width, fresh);
  }

  const uint row = lane / 4, column = lane % 4 * 4;
  float2 total = float2(kMasked, 0), split_total = float2(kMasked, 0);
  float4 sums[4], split_sums[4];
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) sums[j] = split_sums[j] = float4(0.0f);
  uint turn = 0;
  MATRIX_ROLLED for (uint at = place.first_key / kSpan; at < spans_end; ++at) {
    // The next span is loaded while this one is worked on.
    const bool more = !ATTENTION_ONE_SPAN && at + 1 < spans_end;
    DecodePlace next_place = place;
    next_place.first_key += kSpan;
    if (more) next_place.find(blocks, p.kv_heads, kv_head, lane);
    threadgroup float* now = scores + turn * kDecodeScores;
    turn = 1 - turn;
    span.score(place, keys, q, own_key, now, part, lane);
    if (more && next_place.whole())
      span.template fetch_keys<true>(next_place, keys, own_key);
    else if (more)
      span.template fetch_keys<false>(next_place, keys, own_key);
    threadgroup float* scales = now + 8 * kScoreStride;
    if (simdgroup == 0)
      attention_scales(scales, (device const S*)keys, (device const S*)values, blocks, p.kv_heads, kv_head,
                       place.first_key, place.begin, place.end, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint first_key = place.first_key, begin = place.begin, end = place.end;
    const float2 next = place.whole()
                            ? attention_softmax<true, S>(now, scales, first_key, begin, end, p, weights, lane)
                            : attention_softmax<false, S>(now, scales, first_key, begin, end, p, weights, lane);
    simdgroup_float8x8 products[8];
    MATRIX_UNROLL for (uint j = 0; j < 8; ++j) matrix_clear_broad(products[j]);
    span.weigh(place, values, weights, own_dim, width, products, part, lane);
    if (more && next_place.whole())
      span.template fetch_values<true>(next_place, values, own_dim, width);
    else if (more)
      span.template fetch_values<false>(next_place, values, own_dim, width);
    place = next_place;
    matrix_store_right(products, own_sums, sum_stride, width);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const float2 factors = attention_fold(split_total, next);
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
      if (j * 16 < width) {
        const float4 found = *(threadgroup const float4*)(own_sums + row * sum_stride + j * 16 + column);
        split_sums[j] = fma(split_sums[j], float4(factors.x), found * factors.y);
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (place.first_key % p.split != 0 && more) continue;
    const float2 split_factors = attention_fold(total, split_total);
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
      sums[j] = fma(sums[j], float4(split_factors.x), split_sums[j] * split_factors.y);
      split_sums[j] = float4(0.0f);
    }
    split_total = float2(kMasked, 0);
    if (!more) break;
  }

  if (row >= group_size) return;
  const ulong head = ulong(seq) * p.heads + first_query + row;
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
    const uint d = own_dim + j * 16 + column;
    if (j * 16 >= width) continue;
    if (first_piece == last_piece) {
      vec<T, 4> four;
      MATRIX_UNROLL for (uint i = 0; i < 4; ++i) four[i] = T(sums[j][i] / total.y);
      *(device vec<T, 4>*)(out + head * ATTENTION_HEAD_SIZE + d) = four;
    } else {
      *(device float4*)(partial + (head * p.max_pieces + piece) * ATTENTION_HEAD_SIZE + d) = sums[j];
    }
  }
  if (first_piece != last_piece && simdgroup == 0 && lane % 4 == 0) partial_sums[head * p.max_pieces + piece] = total;
}

// Folds the pieces of long sequences together: those of a split in order, then the splits in order. One threadgroup a
// head of a decode row, a thread an element.
template <typename T>
[[kernel]] STARTS_EARLY void decode_attention_merge(
    device const int* seq_lens [[buffer(0)]],
    device const float* partial [[buffer(1)]],        // [D, heads, pieces, head size]
    device const float2* partial_sums [[buffer(2)]],  // [D, heads, pieces]
    device T* out [[buffer(3)]],                      // [T, heads, head size]
    constant AttentionParams& p [[buffer(4)]],
    uint2 group [[threadgroup_position_in_grid]],  // head, sequence
    uint d [[thread_index_in_threadgroup]]) {
  const uint length = uint(seq_lens[group.y]);
  const uint low = ATTENTION_WINDOW > 0 && length > ATTENTION_WINDOW ? length - ATTENTION_WINDOW : 0;
  const uint piece_keys = ATTENTION_ONE_SPAN ? kSpan : p.piece;
  const uint first_piece = low / piece_keys, last_piece = (length - 1) / piece_keys;
  const uint pieces = ATTENTION_ONE_SPAN ? p.split / kSpan : 1;  // of a split, a power of two
  wait_for_dispatches();
  if (first_piece == last_piece) return;
  const bool there = d < ATTENTION_HEAD_SIZE;
  const ulong at = (ulong(group.y) * p.heads + group.x) * p.max_pieces;
  float2 total = float2(kMasked, 0), split = float2(kMasked, 0);
  float sum = 0, split_sum = 0;
  for (uint first = first_piece; first <= last_piece; first += kMergedPieces) {
    float2 totals[kMergedPieces];
    float sums[kMergedPieces];
    MATRIX_UNROLL for (uint i = 0; i < kMergedPieces; ++i) {
      totals[i] = float2(kMasked, 0);
      sums[i] = 0;
      if (there && first + i <= last_piece) {
        totals[i] = partial_sums[at + first + i];
        sums[i] = partial[(at + first + i) * ATTENTION_HEAD_SIZE + d];
      }
    }
    simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
    // Without a branch, so that nothing waits for the powers of the piece before.
    MATRIX_UNROLL for (uint next = 0; next < kMergedPieces; next += kFoldedPieces) {
      if (first + next > last_piece) break;
      float2 splits[kFoldedPieces];
      float split_sums[kFoldedPieces];
      MATRIX_UNROLL for (uint i = 0; i < kFoldedPieces; ++i) {
        const float2 factors = attention_fold(split, totals[next + i]);
        split_sum = fma(split_sum, factors.x, sums[next + i] * factors.y);
        splits[i] = split;
        split_sums[i] = split_sum;
        const bool ends = ((first + next + i + 1) & (pieces - 1)) == 0;
        split = ends ? float2(kMasked, 0) : split;
        split_sum = ends ? 0.0f : split_sum;
      }
      MATRIX_UNROLL for (uint i = 0; i < kFoldedPieces; ++i) {
        const uint piece = first + next + i;
        if (piece > last_piece || (((piece + 1) & (pieces - 1)) != 0 && piece != last_piece)) continue;
        const float2 factors = attention_fold(total, splits[i]);
        sum = fma(sum, factors.x, split_sums[i] * factors.y);
      }
    }
  }
  if (there) out[(ulong(group.y) * p.heads + group.x) * ATTENTION_HEAD_SIZE + d] = T(sum / total.y);
}

// clang-format off
#define DECODE_KERNELS(activation, T, cache, S)                                                                 \
  template [[host_name("decode_attention_shared_" #activation "_" #cache)]] [[kernel]]                          \
  decltype(decode_attention_shared<T, S, 512>) decode_attention_shared<T, S, 512>;                              \
  template [[host_name("decode_attention_roomy_" #activation "_" #cache)]] [[kernel]]                           \
  decltype(decode_attention_shared<T, S, 256>) decode_attention_shared<T, S, 256>;
// clang-format on

DECODE_KERNELS(f16, half, f16, half)
DECODE_KERNELS(f16, half, int8, int8_t)
template [[host_name("decode_attention_merge_f16")]] [[kernel]] decltype(decode_attention_merge<half>)
    decode_attention_merge<half>;
#if INGOT_BFLOAT
DECODE_KERNELS(f16, half, bf16, bfloat)
DECODE_KERNELS(bf16, bfloat, f16, half)
DECODE_KERNELS(bf16, bfloat, bf16, bfloat)
DECODE_KERNELS(bf16, bfloat, int8, int8_t)
template [[host_name("decode_attention_merge_bf16")]] [[kernel]] decltype(decode_attention_merge<bfloat>)
    decode_attention_merge<bfloat>;
#endif
