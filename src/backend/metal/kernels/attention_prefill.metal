// Prefill attention for devices whose matrices are 8 by 8 and whose registers are few: the simdgroups of a threadgroup
// share ATTENTION_ROWS query rows of one head. Each makes the scores of some keys of a span, the softmax of eight rows
// and the values of some dims, so that keys and values are loaded once for all of the rows, and what a simdgroup keeps
// from span to span are its own dims alone. The sums and their order are those of attention_span.h.
#include "attention_span.h"

constant constexpr uint kMostEights = 4;  // of rows of a threadgroup, of dims of a simdgroup
constant uint PREFILL_Q_STRIDE = ATTENTION_HEAD_SIZE + 8;
constant uint PREFILL_RESULT_STRIDE = ATTENTION_HEAD_SIZE + 8;
constant uint PREFILL_DIMS =  // of a simdgroup
    (ATTENTION_HEAD_SIZE + 8 * ATTENTION_SIMDGROUPS - 1) / (8 * ATTENTION_SIMDGROUPS) * 8;
struct PrefillSums {
  simdgroup_float8x8 at[kMostEights][kMostEights];  // eights of rows, eights of the simdgroup's dims
};

static void prefill_clear(thread PrefillSums& sums) {
  MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) MATRIX_UNROLL for (uint j = 0; j < PREFILL_DIMS / 8; ++j)
      sums.at[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}

// The rows of a threadgroup and the keys they see: the same for all of its threads.
struct PrefillTile {
  device const int* blocks;
  uint kv_head;
  uint rows;
  uint position;  // of the first row
  uint length;    // keys that there are
  uint begin;     // keys that a row sees: [begin, end)
  uint end;
  uint first_eight, last_eight;  // of the rows that are wanted

  bool has(uint eight) const thread { return eight >= first_eight && eight <= last_eight; }
  // Tiles of eight keys of a span that a row sees.
  uint first_tile(uint first_key) const thread { return begin > first_key ? (begin - first_key) / 8 : 0; }
  uint last_tile(uint first_key) const thread { return min((end - first_key + 7) / 8, kSpan / 8); }
};

// Threadgroup memory: q, a corner of each simdgroup for cut tiles, scores with two factors a row, weights. Results lie
// where scores and weights were.
template <typename C>
struct PrefillMemory {
  threadgroup C* q;           // [rows][q stride]
  threadgroup C* parts;       // [simdgroups][8][32]; the first one's are the span's scales between the two products
  threadgroup float* scores;  // [rows][score stride], behind 64 scores two factors, eight times each
  threadgroup C* weights;     // [rows][weight stride]
};
template <typename C>
static PrefillMemory<C> prefill_memory(threadgroup float* start) {
  PrefillMemory<C> memory;
  memory.q = (threadgroup C*)start;
  memory.parts = memory.q + ATTENTION_ROWS * PREFILL_Q_STRIDE;
  memory.scores = start + (ATTENTION_ROWS * PREFILL_Q_STRIDE + ATTENTION_SIMDGROUPS * 256) * sizeof(C) / 4;
  memory.weights = (threadgroup C*)(memory.scores + ATTENTION_ROWS * kScoreStride);
  return memory;
}

// Scores of the rows with the simdgroup's keys of a span.
template <typename S, typename C>
static void prefill_scores(PrefillTile tile, PrefillMemory<C> memory, device const S* keys, uint first_key,
                           constant AttentionParams& p, uint thread_index) {
  const uint lane = thread_index % 32, simdgroup = thread_index / 32, own = kSpan / 8 / ATTENTION_SIMDGROUPS;
  const uint end = min(tile.last_tile(first_key), (simdgroup + 1) * own);
  MATRIX_ROLLED for (uint at = max(tile.first_tile(first_key), simdgroup * own); at < end; ++at) {
    const uint key = first_key + at * 8;
    device const S* k = keys + attention_tile_offset<S>(tile.blocks, p.kv_heads, tile.kv_head, key);
    simdgroup_float8x8 found[kMostEights];
    MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) found[i] =
        make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    MATRIX_ROLLED for (uint d = 0; d < ATTENTION_HEAD_SIZE; d += 32) {
      const uint dims = min(32u, ATTENTION_HEAD_SIZE - d);
      simdgroup_matrix<C, 8, 8> b[4];
      attention_load(b, k + d, true, dims, min(tile.length - key, 8u), memory.parts + simdgroup * 256, lane);
      MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) {
        if (!tile.has(i)) continue;
        MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < dims) {
          simdgroup_matrix<C, 8, 8> a;
          simdgroup_load(a, memory.q + i * 8 * PREFILL_Q_STRIDE + d + j * 8, PREFILL_Q_STRIDE);
          simdgroup_multiply_accumulate(found[i], a, b[j], found[i]);
        }
      }
    }
    MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) if (tile.has(i))
        simdgroup_store(found[i], memory.scores + i * 8 * kScoreStride + at * 8, kScoreStride);
  }
}

// Two numbers a row for prefill_fold, behind its scores. A row whose total has nothing new keeps its sums.
static void prefill_put_factors(threadgroup float* scores, thread float2& total, float2 next, uint lane) {
  const float2 factors = next.y != 0 ? attention_fold(total, next) : float2(1, kMatrixKept);
  threadgroup float2* to = (threadgroup float2*)(scores + lane / 4 * kScoreStride + kSpan) + lane % 4;
  to[0] = float2(factors.x);
  to[4] = float2(factors.y);
}

// The simdgroup's eight rows: weights of a span's keys, folded into its total.
template <typename S, typename C>
static void prefill_softmax(PrefillTile tile, PrefillMemory<C> memory, uint first_key, thread float2& total,
                            constant AttentionParams& p, uint thread_index) {
  const uint lane = thread_index % 32, first_row = thread_index / 32 * 8, row = first_row + lane / 4;
  const uint high = row < tile.rows ? tile.position + row + 1 : 0;
  const uint low = ATTENTION_WINDOW > 0 && high > ATTENTION_WINDOW ? high - ATTENTION_WINDOW : 0;
  // What all of the eight see: up to the first one's own key, from where the last one's window begins.
  const uint whole_to = first_row + 8 <= tile.rows ? tile.position + first_row + 1 : 0;
  const uint last = tile.position + first_row + 8;
  const uint whole_from = ATTENTION_WINDOW > 0 && last > ATTENTION_WINDOW ? last - ATTENTION_WINDOW : 0;
  threadgroup float* scores = memory.scores + first_row * kScoreStride;
  threadgroup C* weights = memory.weights + first_row * kWeightStride;
  threadgroup const float* scales = (threadgroup const float*)memory.parts;
  const uint seen = min(high, tile.end);
  const float2 next = first_key >= whole_from && first_key + kSpan <= whole_to
                          ? attention_softmax<true, S>(scores, scales, first_key, low, seen, p, weights, lane)
                          : attention_softmax<false, S>(scores, scales, first_key, low, seen, p, weights, lane);
  prefill_put_factors(scores, total, next, lane);
}

// sums = weights of the span's keys times their values, the simdgroup's dims.
template <typename S, typename C>
static void prefill_values(PrefillTile tile, PrefillMemory<C> memory, device const S* values, uint first_key,
                           thread PrefillSums& sums, constant AttentionParams& p, uint thread_index) {
  const uint lane = thread_index % 32, simdgroup = thread_index / 32, dim = simdgroup * PREFILL_DIMS;
  const uint dims = dim < ATTENTION_HEAD_SIZE ? min(PREFILL_DIMS, ATTENTION_HEAD_SIZE - dim) : 0;
  prefill_clear(sums);
  if (dims == 0) return;
  const uint end = tile.last_tile(first_key);
  MATRIX_ROLLED for (uint at = tile.first_tile(first_key); at < end; ++at) {
    const uint key = first_key + at * 8;
    simdgroup_matrix<C, 8, 8> b[4];
    attention_load(b, values + attention_tile_offset<S>(tile.blocks, p.kv_heads, tile.kv_head, key) + dim, false, dims,
                   attention_rows(key, tile.begin, tile.length), memory.parts + simdgroup * 256, lane);
    MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) {
      if (!tile.has(i)) continue;
      simdgroup_matrix<C, 8, 8> a;
      simdgroup_load(a, memory.weights + i * 8 * kWeightStride + at * 8, kWeightStride);
      MATRIX_UNROLL for (uint j = 0; j < PREFILL_DIMS / 8; ++j) if (j * 8 < dims)
          simdgroup_multiply_accumulate(sums.at[i][j], a, b[j], sums.at[i][j]);
    }
  }
}

// sums = sums * factor + next * next factor, each row by its own two numbers.
static void prefill_fold(PrefillTile tile, threadgroup const float* scores, thread PrefillSums& sums,
                         thread PrefillSums& next) {
  MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) {
    if (!tile.has(i)) continue;
    simdgroup_float8x8 factor, next_factor;
    simdgroup_load(factor, scores + i * 8 * kScoreStride + kSpan, kScoreStride);
    simdgroup_load(next_factor, scores + i * 8 * kScoreStride + kSpan + 8, kScoreStride);
    MATRIX_UNROLL for (uint j = 0; j < PREFILL_DIMS / 8; ++j)
      matrix_fold(sums.at[i][j], factor, next.at[i][j], next_factor);
  }
}

template <typename T, typename S>
[[kernel]] void prefill_attention_shared(device const T* qkv [[buffer(0)]],
                                         device const S* keys [[buffer(1)]],
                                         device const S* values [[buffer(2)]],
                                         device const int* block_table [[buffer(3)]],
                                         device const int* query_start [[buffer(4)]],  // [S + 1]
                                         device const int* seq_lens [[buffer(5)]],
                                         device T* out [[buffer(6)]],
                                         constant AttentionParams& p [[buffer(7)]],
                                         threadgroup float* memory_start [[threadgroup(0)]],
                                         uint3 group [[threadgroup_position_in_grid]],  // tile, head, sequence
                                         uint thread_index [[thread_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  threadgroup float row_totals[8 * kMostEights];
  threadgroup atomic_uint not_finite;  // a bit a row
  threadgroup uint numbers[kPrefillMostThreads];
  const uint seq = p.first_seq + group.z, head = group.y;
  const uint first_row = uint(query_start[seq]);
  const uint rows = uint(query_start[seq + 1]) - first_row;
  const uint tile_row = (p.first_tile + group.x) * ATTENTION_ROWS;
  if (tile_row >= rows) return;
  PrefillTile tile;
  tile.blocks = block_table + ulong(seq) * p.max_blocks;
  tile.kv_head = (head + p.skipped) / p.group;
  tile.rows = min(ATTENTION_ROWS, rows - tile_row);
  tile.length = uint(seq_lens[seq]);
  tile.position = tile.length - rows + tile_row;
  tile.end = tile.position + tile.rows;
  const uint first_end = tile.position + 1;
  tile.begin = ATTENTION_WINDOW > 0 && first_end > ATTENTION_WINDOW ? first_end - ATTENTION_WINDOW : 0;
  tile.first_eight = 0;
  tile.last_eight = (tile.rows - 1) / 8;

  const PrefillMemory<C> memory = prefill_memory<C>(memory_start);
  const uint width = (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
  device const T* x = qkv + ulong(first_row + tile_row) * width + head * ATTENTION_HEAD_SIZE;
  MATRIX_ROLLED for (uint i = thread_index; i < ATTENTION_ROWS * ATTENTION_HEAD_SIZE; i += ATTENTION_SIMDGROUPS * 32) {
    const uint r = i / ATTENTION_HEAD_SIZE, d = i % ATTENTION_HEAD_SIZE;
    memory.q[r * PREFILL_Q_STRIDE + d] = r < tile.rows ? C(float(x[ulong(r) * width + d])) : C(0);
  }
  if (thread_index == 0) atomic_store_explicit(&not_finite, 0u, memory_order_relaxed);
  numbers[thread_index] = thread_index;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // A row's weights of keys that it does not see are zero, which a NaN or an infinity of theirs survives. So rows that
  // are not finite are taken again, each by itself, without what comes after its own key or before its window.
  uint left = 0;                         // of those, a bit a row
  for (uint alone = ATTENTION_ROWS;;) {  // that many: all rows together
    float2 total = float2(kMasked, 0), split_total = float2(kMasked, 0);
    PrefillSums sums, split_sums;
    prefill_clear(sums);
    prefill_clear(split_sums);
    const uint spans_end = (tile.end + kSpan - 1) / kSpan;
    MATRIX_ROLLED for (uint span = tile.begin / kSpan; span < spans_end; ++span) {
      const uint first_key = span * kSpan;
      uint thread_now = number_anew(numbers + thread_index);
      prefill_scores<S, C>(tile, memory, keys, first_key, p, thread_now);
      if (thread_now < 32)
        attention_scales((threadgroup float*)memory.parts, keys, values, tile.blocks, p.kv_heads, tile.kv_head,
                         first_key, tile.begin, tile.end, thread_now);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      thread_now = number_anew(numbers + thread_index);
      if (tile.has(thread_now / 32)) prefill_softmax<S, C>(tile, memory, first_key, split_total, p, thread_now);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      thread_now = number_anew(numbers + thread_index);
      PrefillSums products;
      prefill_values<S, C>(tile, memory, values, first_key, products, p, thread_now);
      prefill_fold(tile, memory.scores, split_sums, products);
      if ((span + 1) * kSpan % p.split != 0 && span + 1 != spans_end) continue;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const uint lane = thread_now % 32, own_row = thread_now / 32 * 8;
      if (tile.has(own_row / 8)) {
        prefill_put_factors(memory.scores + own_row * kScoreStride, total, split_total, lane);
        split_total = float2(kMasked, 0);
        if (lane % 4 == 0) row_totals[own_row + lane / 4] = total.y;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      prefill_fold(tile, memory.scores, sums, split_sums);
      prefill_clear(split_sums);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);  // all have read their factors

    const uint thread_now = number_anew(numbers + thread_index);
    const uint lane = thread_now % 32, dim = thread_now / 32 * PREFILL_DIMS;
    threadgroup float* results = memory.scores + dim;  // [8][result stride]
    MATRIX_UNROLL for (uint i = 0; i < ATTENTION_ROWS / 8; ++i) {
      if (!tile.has(i)) continue;
      MATRIX_UNROLL for (uint j = 0; j < PREFILL_DIMS / 8; ++j) if (dim + j * 8 < ATTENTION_HEAD_SIZE)
          simdgroup_store(sums.at[i][j], results + j * 8, PREFILL_RESULT_STRIDE);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      const uint row = i * 8 + lane / 4;
      if (row < tile.rows && (alone == ATTENTION_ROWS || row == alone)) {
        // By its bits, as fast math may not know such numbers.
        constexpr uint kExponent = 0x7f800000;
        uint most = 0;
        const float row_total = row_totals[row];
        device T* y = out + (ulong(first_row + tile_row + row) * p.heads + head) * ATTENTION_HEAD_SIZE;
        const uint dims_end = min(dim + PREFILL_DIMS, ATTENTION_HEAD_SIZE);
        MATRIX_ROLLED for (uint d = dim + lane % 4; d < dims_end; d += 4) {
          const float sum = memory.scores[lane / 4 * PREFILL_RESULT_STRIDE + d];
          most = max(most, as_type<uint>(sum) & kExponent);
          y[d] = T(sum / row_total);
        }
        if (most == kExponent && alone == ATTENTION_ROWS && tile.rows > 1)
          atomic_fetch_or_explicit(&not_finite, 1u << row, memory_order_relaxed);
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    left = alone == ATTENTION_ROWS ? atomic_load_explicit(&not_finite, memory_order_relaxed) : left & (left - 1);
    if (left == 0) return;
    alone = ctz(left);
    tile.first_eight = tile.last_eight = alone / 8;
    tile.length = tile.end = tile.position + alone + 1;
    tile.begin = ATTENTION_WINDOW > 0 && tile.end > ATTENTION_WINDOW ? tile.end - ATTENTION_WINDOW : 0;
  }
}

// clang-format off
#define PREFILL_KERNELS(activation, T, cache, S)                                                                \
  template [[host_name("prefill_attention_shared_" #activation "_" #cache)]] [[kernel]]                         \
  decltype(prefill_attention_shared<T, S>) prefill_attention_shared<T, S>;
// clang-format on

PREFILL_KERNELS(f16, half, f16, half)
PREFILL_KERNELS(f16, half, int8, int8_t)
PREFILL_KERNELS(f16, half, f32, float)
#if INGOT_BFLOAT
PREFILL_KERNELS(f16, half, bf16, bfloat)
PREFILL_KERNELS(bf16, bfloat, f16, half)
PREFILL_KERNELS(bf16, bfloat, bf16, bfloat)
PREFILL_KERNELS(bf16, bfloat, int8, int8_t)
PREFILL_KERNELS(bf16, bfloat, f32, float)
#endif
