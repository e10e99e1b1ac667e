// Prefill attention for devices that multiply sixteen rows at once and have much threadgroup memory, for heads of 64
// and 128 dims in numbers of 16 bits or less. A threadgroup has ATTENTION_ROWS query rows: the same positions of
// ATTENTION_HEADS heads of one KV head. Each simdgroup has 16 or 32 of them, of one head, all keys and all dims; spans
// of keys and values are copied to threadgroup memory once for all of them, values while scores are made, the next keys
// while values are weighed. Scores, weights and sums stay in registers. The sums and their order are those of
// attention_span.h.
#include "attention_span.h"

// 1: keys and values of a span take turns in one; 2: each has its own; 4: those of the next span have two more.
constant uint ATTENTION_BUFFERS [[function_constant(kAttentionBuffers)]];

constant constexpr uint kTilesMostEights = 4;                              // of rows of a simdgroup
constant uint TILES_EIGHTS = ATTENTION_ROWS / (8 * ATTENTION_SIMDGROUPS);  // 2 or 4
constant uint TILES_POSITIONS = ATTENTION_ROWS / ATTENTION_HEADS;          // of a threadgroup
constant uint TILES_STRIDE = ATTENTION_HEAD_SIZE + 8;                      // of a key, for other banks
constant uint TILES_SIXTEENS = ATTENTION_HEAD_SIZE / 16;                   // of dims
constant constexpr uint kTilesMostSixteens = 8;

// The rows of a threadgroup and the keys they see: the same for all of its threads.
struct TilesPart {
  device const int* blocks;
  uint kv_head;
  uint position;  // of the first row
  uint begin;     // keys that a row sees: [begin, end)
  uint end;
  uint length;  // keys that there are to be seen; others count as zeros
};

// Threadgroup memory.
template <typename C>
struct TilesMemory {
  threadgroup uint4* q;       // [rows / 16][head size / 32][64], for matrix_load_pair; the simdgroup's own
  threadgroup C* keys;        // [64][stride]; sixteens in the order of matrix_four_place. Odd spans may have others
  threadgroup C* values;      // likewise
  threadgroup float4* kept;   // [eights][dims / 16][32]: sums of the splits so far; the lane's own
  threadgroup float* scales;  // [2][64], see attention_scales. Odd spans may have others
  threadgroup float* part;    // [8][16], the simdgroup's own, for matrices that are no lanes' numbers
};
template <typename S, typename C>
static TilesMemory<C> tiles_memory(threadgroup uint4* start, uint simdgroup) {
  const uint q = TILES_EIGHTS * ATTENTION_HEAD_SIZE, buffer = kSpan * TILES_STRIDE / 8,
             kept = TILES_EIGHTS * TILES_SIXTEENS * 32;
  TilesMemory<C> memory;
  memory.q = start + simdgroup * q;
  threadgroup uint4* at = start + ATTENTION_SIMDGROUPS * q;
  memory.keys = (threadgroup C*)at;
  memory.values = (threadgroup C*)(at + (ATTENTION_BUFFERS > 1 ? buffer : 0));
  at += ATTENTION_BUFFERS * buffer;
  memory.kept = (threadgroup float4*)(at + simdgroup * kept);
  at += ATTENTION_SIMDGROUPS * kept;
  memory.scales = (threadgroup float*)at;
  at += sizeof(S) == 1 ? (ATTENTION_BUFFERS == 4 ? 4 : 2) * kSpan / 4 : 0;
  memory.part = (threadgroup float*)(at + simdgroup * 32);
  return memory;
}

// The simdgroup's rows of q, of which there are `rows`, `width` elements from one to the next. Dims are in the order of
// matrix_load_lines.
template <typename C, typename T>
static void tiles_load_q(threadgroup uint4* to, device const T* from, ulong width, uint rows, uint lane) {
  MATRIX_ROLLED for (uint i = 0; i < TILES_EIGHTS / 2 * (ATTENTION_HEAD_SIZE / 32); ++i) {
    const uint step = i % (ATTENTION_HEAD_SIZE / 32), row = i / (ATTENTION_HEAD_SIZE / 32) * 16 + lane / 4;
    const uint dim = step / 2 * 64 + (kWideMatrices ? step % 2 * 8 + lane % 4 * 16 : step % 2 * 32 + lane % 4 * 8);
    const uint4 upper = row < rows ? attention_eight<C>(from + row * width + dim) : uint4(0);
    const uint4 lower = row + 8 < rows ? attention_eight<C>(from + (row + 8) * width + dim) : uint4(0);
    matrix_put_pair(to + i * 64, upper, lower, lane);
  }
}

// 16 bytes of the cache to threadgroup memory.
template <typename S, typename C>
static void tiles_copy(threadgroup C* to, device const S* from, bool there) {
  if (there)
    begin_copy((threadgroup uint4*)to, (device const uint4*)from);
  else
    *(threadgroup uint4*)to = uint4(0);
}
static void tiles_copy(threadgroup half* to, device const int8_t* from, bool there) {
  const uint4 words = there ? *(device const uint4*)from : uint4(0);
  threadgroup half4* fours = (threadgroup half4*)to;
  MATRIX_UNROLL_WIDE for (uint i = 0; i < 4; ++i) fours[i] = matrix_halves(words[i]);
}
// Begins to copy the keys of a span, or its values. `Whole`: all 64 are there.
template <bool Whole, typename S, typename C>
static void tiles_begin_span(TilesPart part, threadgroup C* to, device const S* from, uint first_key,
                             constant AttentionParams& p, uint thread_index) {
  constexpr uint kUnit = 16 / sizeof(S);  // elements
  const uint units = ATTENTION_HEAD_SIZE / kUnit, threads = ATTENTION_SIMDGROUPS * 32;
  MATRIX_UNROLL_WIDE for (uint i = 0; i < kSpan * units; i += threads) {
    const uint at = i + thread_index, key = at / units, dim = at % units * kUnit, place = first_key + key;
    if (kSpan * units % threads != 0 && at >= kSpan * units) continue;
    const bool there = Whole || (place >= part.begin && place < part.length);
    const uint block = there ? uint(part.blocks[place / ATTENTION_BLOCK_SIZE]) : 0;
    tiles_copy(to + (key / 16 * 16 + matrix_four_place(key % 16)) * TILES_STRIDE + dim,
               from + attention_head_offset<S>(block * p.kv_heads + part.kv_head, place) + dim, there);
  }
}
template <typename S, typename C>
static void tiles_begin(TilesPart part, threadgroup C* to, device const S* from, uint first_key,
                        constant AttentionParams& p, uint thread_index) {
  if (ATTENTION_BUFFERS == 4) to += first_key / kSpan % 2 * (2 * kSpan * TILES_STRIDE);
  if (first_key >= part.begin && first_key + kSpan <= part.length)
    tiles_begin_span<true>(part, to, from, first_key, p, thread_index);
  else
    tiles_begin_span<false>(part, to, from, first_key, p, thread_index);
  end_copies();
}

// Scores of the simdgroup's rows with 64 keys: eights of rows, eights of keys.
template <typename C>
static void tiles_scores(TilesMemory<C> memory, threadgroup const C* keys,
                         thread simdgroup_float8x8 (&scores)[kTilesMostEights][8], uint lane) {
  MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) MATRIX_UNROLL_WIDE for (uint t = 0; t < 8; ++t)
      scores[e][t] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  MATRIX_UNROLL_WIDE for (uint step = 0; step < ATTENTION_HEAD_SIZE / 32; ++step) {
    simdgroup_matrix<C, 8, 8> q[kTilesMostEights][4];
    MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; e += 2) MATRIX_UNROLL_WIDE for (uint j = 0; j < 4; j += 2)
        matrix_load_pair(q[e] + j, q[e + 1] + j, memory.q + (e / 2 * (ATTENTION_HEAD_SIZE / 32) + step) * 64, j, lane);
    const uint dim = step / 2 * 64 + step % 2 * (kWideMatrices ? 8 : 32);
    MATRIX_UNROLL_WIDE for (uint t = 0; t < 8; ++t) {
      simdgroup_matrix<C, 8, 8> k[4];
      matrix_load_wide(k, keys + t * 8 * TILES_STRIDE + dim, TILES_STRIDE, true, 8, (threadgroup C*)memory.part, lane,
                       kWideMatrices ? 16 : 8);
      MATRIX_UNROLL_WIDE for (uint j = 0; j < 4; j += 2) MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; e += 2)
          matrix_multiply_wide(scores[e][t], scores[e + 1][t], q[e][j], q[e][j + 1], q[e + 1][j], q[e + 1][j + 1], k[j],
                               k[j + 1]);
    }
  }
}

// Weights of 64 keys, as left operands, from the scores of eight rows: attention_softmax on registers.
template <bool Whole, typename S, typename C>
static float2 tiles_softmax(TilesMemory<C> memory, threadgroup const float* scales,
                            thread const simdgroup_float8x8* scores, thread simdgroup_matrix<C, 8, 8>* weights,
                            uint first_key, uint low, uint high, float scale, uint lane) {
  float4 found[4];
  float best = kMasked;
  MATRIX_UNROLL_WIDE for (uint i = 0; i < 4; ++i) {
    found[i] = matrix_take_four(scores[i * 2], scores[i * 2 + 1], memory.part, lane);
    MATRIX_UNROLL_WIDE for (uint j = 0; j < 4; ++j) {
      const uint at = i * 16 + lane % 4 * 4 + j;
      const bool seen = Whole || (first_key + at >= low && first_key + at < high);
      float value = seen ? found[i][j] * scale : kMasked;
      if (sizeof(S) == 1 && seen) value *= scales[at];
      found[i][j] = value;
      best = max(best, value);
    }
  }
  best = max(best, simd_shuffle_xor(best, 1));
  best = max(best, simd_shuffle_xor(best, 2));
  uint power = 127;
  if (sizeof(S) == 1) {
    float largest = 0;
    MATRIX_UNROLL_WIDE for (uint i = 0; i < 16; ++i) {
      const uint at = i / 4 * 16 + lane % 4 * 4 + i % 4;
      if (Whole || (first_key + at >= low && first_key + at < high)) largest = max(largest, scales[kSpan + at]);
    }
    largest = max(largest, simd_shuffle_xor(largest, 1));
    largest = max(largest, simd_shuffle_xor(largest, 2));
    if (largest > 0) power = as_type<uint>(largest) >> 23;
  }
  const float inverse = as_type<float>((254 - power) << 23);
  float sum = 0;
  MATRIX_UNROLL_WIDE for (uint i = 0; i < 4; ++i) {
    vec<C, 4> four;
    MATRIX_UNROLL_WIDE for (uint j = 0; j < 4; j += 2) {
      float2 exact, scaled;
      MATRIX_UNROLL_WIDE for (uint b = 0; b < 2; ++b) {
        const uint at = i * 16 + lane % 4 * 4 + j + b;
        const bool seen = Whole || (first_key + at >= low && first_key + at < high);
        exact[b] = seen ? power_of_two(found[i][j + b] - best) : 0.0f;
        scaled[b] = sizeof(S) == 1 && seen ? exact[b] * (scales[kSpan + at] * inverse) : exact[b];
      }
      const vec<C, 2> two = rounded_two<C>(scaled);
      MATRIX_UNROLL_WIDE for (uint b = 0; b < 2; ++b) {
        four[j + b] = two[b];
        sum += sizeof(S) == 1 ? exact[b] : float(two[b]);
      }
    }
    matrix_set_four(weights + i * 2, four, (threadgroup C*)memory.part, lane);
  }
  sum += simd_shuffle_xor(sum, 1);
  sum += simd_shuffle_xor(sum, 2);
  if (sizeof(S) == 1) {
    sum *= inverse;
    best += float(int(power) - 127);
  }
  return float2(best, sum);
}

// Weights of all of the simdgroup's rows, and what their sums are then multiplied with.
template <bool Whole, typename S, typename C>
static void tiles_weights(TilesMemory<C> memory, threadgroup const float* scales,
                          thread const simdgroup_float8x8 (&scores)[kTilesMostEights][8],
                          thread simdgroup_matrix<C, 8, 8> (&weights)[kTilesMostEights][8],
                          thread float2 (&totals)[kTilesMostEights], thread float2 (&factors)[kTilesMostEights],
                          uint first_key, uint position, uint rows, float scale, uint lane) {
  MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) {
    const uint row = e * 8 + lane / 4;
    const uint high = row < rows ? position + row + 1 : 0;
    const uint low = ATTENTION_WINDOW > 0 && high > ATTENTION_WINDOW ? high - ATTENTION_WINDOW : 0;
    const float2 next =
        tiles_softmax<Whole, S>(memory, scales, scores[e], weights[e], first_key, low, high, scale, lane);
    factors[e] = Whole ? attention_fold(totals[e], next) : attention_fold_seen(totals[e], next);
  }
}

typedef float4 TilesSums[kTilesMostEights][kTilesMostSixteens];

// sums = sums * factor + weights * values * next factor, each row by its own two numbers; products of 64 keys stand
// alone.
template <typename C>
static void tiles_weigh(TilesMemory<C> memory, threadgroup const C* values,
                        thread const simdgroup_matrix<C, 8, 8> (&weights)[kTilesMostEights][8], thread TilesSums& sums,
                        thread const float2* factors, uint lane) {
  MATRIX_UNROLL_WIDE for (uint n = 0; n < TILES_SIXTEENS; ++n) {
    simdgroup_float8x8 products[kTilesMostEights][2];
    MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) MATRIX_UNROLL_WIDE for (uint c = 0; c < 2; ++c)
        products[e][c] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    MATRIX_UNROLL_WIDE for (uint i = 0; i < kSpan / 16; ++i) {
      simdgroup_matrix<C, 8, 8> v[4];
      matrix_load_square(v, values + i * 16 * TILES_STRIDE + n * 16, TILES_STRIDE);
      MATRIX_UNROLL_WIDE for (uint c = 0; c < 2; ++c) MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; e += 2)
          matrix_multiply_wide(products[e][c], products[e + 1][c], weights[e][i * 2], weights[e][i * 2 + 1],
                               weights[e + 1][i * 2], weights[e + 1][i * 2 + 1], v[c * 2], v[c * 2 + 1]);
    }
    MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) {
      const float4 found = matrix_take_four(products[e][0], products[e][1], memory.part, lane);
      sums[e][n] = fma(sums[e][n], float4(factors[e].x), found * factors[e].y);
    }
  }
}

// The sums of a split are folded into those of all before it and begin anew.
static void tiles_fold(threadgroup float4* kept, thread TilesSums& sums, thread const float2* factors) {
  MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e)
      MATRIX_UNROLL_WIDE for (uint n = 0; n < TILES_SIXTEENS; ++n) {
    threadgroup float4* own = kept + (e * TILES_SIXTEENS + n) * 32;
    *own = fma(*own, float4(factors[e].x), sums[e][n] * factors[e].y);
    sums[e][n] = float4(0.0f);
  }
}

template <typename T, typename S, uint Threads>
[[kernel, max_total_threads_per_threadgroup(Threads)]] void prefill_attention_tiles(
    device const T* qkv [[buffer(0)]], device const S* keys [[buffer(1)]], device const S* values [[buffer(2)]],
    device const int* block_table [[buffer(3)]],
    device const int* query_start [[buffer(4)]],  // [S + 1]
    device const int* seq_lens [[buffer(5)]], device T* out [[buffer(6)]], constant AttentionParams& p [[buffer(7)]],
    threadgroup uint4* memory_start [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]],  // heads, tile from the last on, sequence
    uint3 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  constexpr uint kWords = 8;  // of a bit for each position of a threadgroup
  threadgroup atomic_uint not_finite[kWords];
  const uint seq = p.first_seq + group.z;
  const uint first_row = uint(query_start[seq]);
  const uint rows = uint(query_start[seq + 1]) - first_row;
  const uint tile_row = (p.first_tile + groups.y - 1 - group.y) * TILES_POSITIONS;
  if (tile_row >= rows) return;
  const uint tile_rows = min(TILES_POSITIONS, rows - tile_row);
  // The simdgroup's rows: of the tile, and how many there are.
  const uint head = group.x * ATTENTION_HEADS + simdgroup % ATTENTION_HEADS;
  const uint own_row = simdgroup / ATTENTION_HEADS * (TILES_EIGHTS * 8);
  const uint own_rows = own_row < tile_rows ? min(TILES_EIGHTS * 8, tile_rows - own_row) : 0;
  TilesPart part;
  part.blocks = block_table + ulong(seq) * p.max_blocks;
  part.kv_head = (head + p.skipped) / p.group;
  part.length = uint(seq_lens[seq]);
  part.position = part.length - rows + tile_row;
  part.end = part.position + tile_rows;
  const uint first_end = part.position + 1;
  part.begin = ATTENTION_WINDOW > 0 && first_end > ATTENTION_WINDOW ? first_end - ATTENTION_WINDOW : 0;

  const TilesMemory<C> memory = tiles_memory<S, C>(memory_start, simdgroup);
  const uint width = (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
  const uint own_position = part.position + own_row;
  tiles_load_q<C>(memory.q, qkv + ulong(first_row + tile_row + own_row) * width + head * ATTENTION_HEAD_SIZE, width,
                  own_rows, lane);
  if (thread_index < kWords) atomic_store_explicit(not_finite + thread_index, 0u, memory_order_relaxed);
  // What all of the simdgroup's rows see: up to the first one's own key, from where the last one's window begins.
  const uint own_last = own_position + TILES_EIGHTS * 8;
  const uint whole_to = own_rows == TILES_EIGHTS * 8 ? own_position + 1 : 0;
  const uint whole_from = ATTENTION_WINDOW > 0 && own_last > ATTENTION_WINDOW ? own_last - ATTENTION_WINDOW : 0;
  const uint own_begin =
      ATTENTION_WINDOW > 0 && own_position + 1 > ATTENTION_WINDOW ? own_position + 1 - ATTENTION_WINDOW : 0;

  // A row's weights of keys that it does not see are zero, which a NaN or an infinity of theirs survives. So positions
  // with a result that is not finite are taken again, one at a time, without what comes after their own key or before
  // their window.
  for (uint alone = TILES_POSITIONS;;) {  // that many: all together
    const bool all = alone == TILES_POSITIONS;
    const bool needed = all ? own_rows > 0 : alone >= own_row && alone < own_row + own_rows;
    float2 totals[kTilesMostEights], split_totals[kTilesMostEights];
    TilesSums split_sums;
    threadgroup float4* kept = memory.kept + lane;
    MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) {
      totals[e] = split_totals[e] = float2(kMasked, 0);
      MATRIX_UNROLL_WIDE for (uint n = 0; n < TILES_SIXTEENS; ++n) {
        kept[(e * TILES_SIXTEENS + n) * 32] = float4(0.0f);
        split_sums[e][n] = float4(0.0f);
      }
    }
    const uint spans_end = (part.end + kSpan - 1) / kSpan;
    uint span = part.begin / kSpan;
    tiles_begin(part, memory.keys, keys, span * kSpan, p, thread_index);
    if (ATTENTION_BUFFERS == 4) tiles_begin(part, memory.values, values, span * kSpan, p, thread_index);
    MATRIX_ROLLED for (; span < spans_end; ++span) {
      const uint first_key = span * kSpan;
      const bool more = span + 1 < spans_end;
      const bool mine = needed && first_key < own_position + own_rows && first_key + kSpan > own_begin;
      threadgroup float* scales = memory.scales + (ATTENTION_BUFFERS == 4 ? span % 2 * (2 * kSpan) : 0);
      if (simdgroup == 0)
        attention_scales(scales, keys, values, part.blocks, p.kv_heads, part.kv_head, first_key, part.begin,
                         part.length, lane);
      wait_for_copies();
      threadgroup_barrier(mem_flags::mem_threadgroup);  // they are there, and nobody reads those before
      if (ATTENTION_BUFFERS == 2) tiles_begin(part, memory.values, values, first_key, p, thread_index);
      if (ATTENTION_BUFFERS == 4 && more) {
        tiles_begin(part, memory.keys, keys, first_key + kSpan, p, thread_index);
        tiles_begin(part, memory.values, values, first_key + kSpan, p, thread_index);
      }
      const uint odd = ATTENTION_BUFFERS == 4 ? span % 2 * (2 * kSpan * TILES_STRIDE) : 0;
      simdgroup_matrix<C, 8, 8> weights[kTilesMostEights][8];
      float2 factors[kTilesMostEights];
      if (mine) {
        simdgroup_float8x8 scores[kTilesMostEights][8];
        tiles_scores(memory, memory.keys + odd, scores, lane);
        if (first_key >= whole_from && first_key + kSpan <= whole_to)
          tiles_weights<true, S>(memory, scales, scores, weights, split_totals, factors, first_key, own_position,
                                 own_rows, p.scale, lane);
        else
          tiles_weights<false, S>(memory, scales, scores, weights, split_totals, factors, first_key, own_position,
                                  own_rows, p.scale, lane);
      }
      if (ATTENTION_BUFFERS == 1) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tiles_begin(part, memory.values, values, first_key, p, thread_index);
      }
      if (ATTENTION_BUFFERS < 4) {
        wait_for_copies();
        threadgroup_barrier(mem_flags::mem_threadgroup);  // the values are there, and nobody reads the keys
      }
      if (ATTENTION_BUFFERS == 2 && more) tiles_begin(part, memory.keys, keys, first_key + kSpan, p, thread_index);
      if (mine) tiles_weigh(memory, memory.values + odd, weights, split_sums, factors, lane);
      if (ATTENTION_BUFFERS == 1) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (more) tiles_begin(part, memory.keys, keys, first_key + kSpan, p, thread_index);
      }
      if (((first_key + kSpan) & (p.split - 1)) != 0 && more) continue;  // a power of two
      MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) {
        factors[e] = attention_fold_seen(totals[e], split_totals[e]);
        split_totals[e] = float2(kMasked, 0);
      }
      tiles_fold(kept, split_sums, factors);
    }

    MATRIX_UNROLL_WIDE for (uint e = 0; e < TILES_EIGHTS; ++e) {
      const uint row = own_row + e * 8 + lane / 4;
      if (row >= own_row + own_rows || !(all || row == alone)) continue;
      device T* y = out + (ulong(first_row + tile_row + row) * p.heads + head) * ATTENTION_HEAD_SIZE;
      // By its bits, as fast math may not know such numbers.
      constexpr uint kExponent = 0x7f800000;
      uint most = 0;
      MATRIX_ROLLED for (uint n = 0; n < TILES_SIXTEENS; ++n) {
        const float4 four = kept[(e * TILES_SIXTEENS + n) * 32];
        MATRIX_UNROLL_WIDE for (uint j = 0; j < 4; j += 2) {
          most = max(most, max(as_type<uint>(four[j]) & kExponent, as_type<uint>(four[j + 1]) & kExponent));
          *(device vec<T, 2>*)(y + n * 16 + matrix_four_column(lane, j)) =
              vec<T, 2>(T(four[j] / totals[e].y), T(four[j + 1] / totals[e].y));
        }
      }
      if (most == kExponent && all && tile_rows > 1)
        atomic_fetch_or_explicit(not_finite + row / 32, 1u << row % 32, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint next = all ? 0 : alone + 1;
    while (next < tile_rows &&
           (atomic_load_explicit(not_finite + next / 32, memory_order_relaxed) >> next % 32 & 1u) == 0)
      ++next;
    if (next >= tile_rows) return;
    alone = next;
    part.length = part.end = part.position + alone + 1;
    part.begin = ATTENTION_WINDOW > 0 && part.end > ATTENTION_WINDOW ? part.end - ATTENTION_WINDOW : 0;
  }
}

// clang-format off
#define TILES_KERNELS(activation, T, cache, S)                                                                  \
  template [[host_name("prefill_attention_tiles_" #activation "_" #cache)]] [[kernel]]                          \
  decltype(prefill_attention_tiles<T, S, 256>) prefill_attention_tiles<T, S, 256>;
// clang-format on

TILES_KERNELS(f16, half, f16, half)
TILES_KERNELS(f16, half, int8, int8_t)
#if INGOT_BFLOAT
TILES_KERNELS(f16, half, bf16, bfloat)
TILES_KERNELS(bf16, bfloat, f16, half)
TILES_KERNELS(bf16, bfloat, bf16, bfloat)
TILES_KERNELS(bf16, bfloat, int8, int8_t)
#endif
