// Prefill attention on GPUs whose simdgroups multiply four together (SOFTMETAL_WARPGROUPS), for heads of 64 and 128
// dims and caches of 16 bits. A threadgroup has 128 query rows, the same positions of ATTENTION_HEADS heads of one KV
// head: two warpgroups with 64 of them each, a simdgroup 16 rows of one head, all keys and all dims. A third warpgroup
// brings keys and values through two rings in threadgroup memory, ahead of what is multiplied. A warpgroup begins with
// the scores of the next span before it is done with the values of this one; while one is busy with weights the other
// multiplies. Scores, weights and sums stay in registers as lanes hold them in prefill_attention_tiles, and so the
// sums and their order are the same.
#include "attention_span.h"

#ifdef SOFTMETAL_WARPGROUPS

constant uint QUADS_POSITIONS = kQuadsRows / ATTENTION_HEADS;  // of a threadgroup
constant uint QUADS_SIXTEENS = ATTENTION_HEAD_SIZE / 16;       // of dims
constant uint QUADS_BUFFER = kSpan * ATTENTION_HEAD_SIZE * 2;  // bytes of the keys of a span, or of its values
constant constexpr uint kQuadsEight = kSpan * 16;              // bytes of eight dims of a span
constant constexpr uint kQuadsBringers = 128;                  // threads of the third warpgroup

// Threadgroup memory: keys of spans, their values, sums so far, q, and the barriers of both rings.
//   kept  float4 [simdgroup][dims / 8][32]: sums of the splits so far; the lane's own
//   q     [warpgroup][head size / 8][64 rows][16 bytes]
constant uint QUADS_VALUES = kQuadsBuffers * QUADS_BUFFER;
constant uint QUADS_KEPT = 2 * QUADS_VALUES;
constant uint QUADS_Q = QUADS_KEPT + kQuadsRows * ATTENTION_HEAD_SIZE * 4;
constant uint QUADS_BARRIERS = QUADS_Q + kQuadsRows * ATTENTION_HEAD_SIZE * 2;

// A place in both rings, and how often it went round. Addresses are from the start of the threadgroup's memory.
struct QuadsPlace {
  uint at, phase;

  METAL_FUNC void next() thread {
    at += 1;
    if (at == kQuadsBuffers) {
      at = 0;
      phase ^= 1;
    }
  }
  METAL_FUNC uint keys() const thread { return at * QUADS_BUFFER; }
  METAL_FUNC uint values() const thread { return QUADS_VALUES + at * QUADS_BUFFER; }
  METAL_FUNC uint has_keys() const thread { return QUADS_BARRIERS + at * 8; }
  METAL_FUNC uint wants_keys() const thread { return QUADS_BARRIERS + (kQuadsBuffers + at) * 8; }
  METAL_FUNC uint has_values() const thread { return QUADS_BARRIERS + (2 * kQuadsBuffers + at) * 8; }
  METAL_FUNC uint wants_values() const thread { return QUADS_BARRIERS + (3 * kQuadsBuffers + at) * 8; }
};
// Keys and values lie as right operands: [head size / 8][64 keys][16 bytes], a sixteen of keys in the order of
// matrix_four_place. Eight dims of a key are those that meet in an instruction, of a value neighbours.

// The rows of a threadgroup and the keys they see: the same for all of its threads.
struct QuadsPart {
  device const int* blocks;
  uint kv_head;
  uint position;  // of the first row
  uint rows;      // of each head
  uint begin;     // keys that a row sees: [begin, end)
  uint end;
  uint length;  // keys that there are to be seen; others count as zeros
  uint alone;   // the one position that is taken; QUADS_POSITIONS: all

  // A row's weights of keys that it does not see are zero, which a NaN or an infinity of theirs survives. So positions
  // with a result that is not finite are taken again, one at a time, without what comes after their own key or before
  // their window. False: there are none.
  METAL_FUNC bool next(threadgroup atomic_uint* not_finite) thread {
    uint row = alone == QUADS_POSITIONS ? 0 : alone + 1;
    while (row < rows && (atomic_load_explicit(not_finite + row / 32, memory_order_relaxed) >> row % 32 & 1u) == 0)
      ++row;
    if (row >= rows) return false;
    alone = row;
    length = end = position + alone + 1;
    begin = ATTENTION_WINDOW > 0 && end > ATTENTION_WINDOW ? end - ATTENTION_WINDOW : 0;
    return true;
  }
};

// ---- keys and values ------------------------------------------------------------------------------------------------

// A thread has half of the eights of dims of one key, and of its value.
template <typename S>
struct QuadsKey {
  uint4 words[8];  // [64 dims][16 dims]
};
struct QuadsSource {
  ulong offset;  // elements
  bool there;
};
template <typename S>
METAL_FUNC QuadsSource quads_source(thread const QuadsPart& part, uint key, constant AttentionParams& p) {
  QuadsSource source;
  source.there = key >= part.begin && key < part.length;
  const uint block = source.there ? uint(part.blocks[key / ATTENTION_BLOCK_SIZE]) : 0;
  source.offset = attention_head_offset<S>(block * p.kv_heads + part.kv_head, key);
  return source;
}
template <typename S>
METAL_FUNC void quads_fetch_key(thread QuadsKey<S>& key, device const S* keys, QuadsSource source, uint half_of) {
  MATRIX_UNROLL for (uint i = 0; i < ATTENTION_HEAD_SIZE / 16; ++i) key.words[i] =
      source.there ? *(device const uint4*)(keys + source.offset + i * 16 + half_of * 8) : uint4(0);
}
// Four lots of eight neighbouring dims, sixteen apart, become four of those that meet: two dims of each.
METAL_FUNC void quads_put_four(threadgroup uint4* to, uint apart, thread const uint4* lots) {
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) to[j * apart] = uint4(lots[0][j], lots[1][j], lots[2][j], lots[3][j]);
}

template <typename S>
METAL_FUNC void quads_put_key(threadgroup uint4* to, thread const QuadsKey<S>& key, uint at, uint half_of) {
  MATRIX_UNROLL for (uint g = 0; g < ATTENTION_HEAD_SIZE / 64; ++g)
      quads_put_four(to + (g * 8 + half_of * 4) * kSpan + at, kSpan, key.words + g * 4);
}
template <typename S>
METAL_FUNC void quads_copy_value(threadgroup uint4* to, device const S* values, QuadsSource source, uint at,
                                 uint half_of) {
  MATRIX_UNROLL for (uint i = 0; i < ATTENTION_HEAD_SIZE / 16; ++i) {
    threadgroup uint4* own = to + (i * 2 + half_of) * kSpan + at;
    if (source.there)
      begin_copy(own, (device const uint4*)(values + source.offset + i * 16 + half_of * 8));
    else
      *own = uint4(0);
  }
}

template <typename S>
METAL_FUNC void quads_bring(QuadsPart part, threadgroup uchar* memory, threadgroup atomic_uint* not_finite,
                            device const S* keys, device const S* values, constant AttentionParams& p,
                            uint thread_index) {
  // Eight lanes have neighbouring places: 128 bytes of threadgroup memory at a time.
  const uint at = thread_index / 16 * 8 + thread_index % 8, half_of = thread_index / 8 % 2;
  const uint own_key = at / 16 * 16 + at % 8 / 2 * 4 + at % 16 / 8 * 2 + at % 2;
  const uint start = softmetal_address(memory);
  QuadsPlace place = {0, 0};
  do {
    const uint spans_end = (part.end + kSpan - 1) / kSpan;
    uint span = part.begin / kSpan, told = 0;
    QuadsKey<S> key;
    QuadsSource source = quads_source<S>(part, span * kSpan + own_key, p);
    quads_fetch_key(key, keys, source, half_of);
    MATRIX_ROLLED for (; span < spans_end; ++span) {
      softmetal_wait(start + place.wants_values(), place.phase ^ 1);
      quads_copy_value((threadgroup uint4*)(memory + place.values()), values, source, at, half_of);
      end_copies();
      softmetal_wait(start + place.wants_keys(), place.phase ^ 1);
      quads_put_key((threadgroup uint4*)(memory + place.keys()), key, at, half_of);
      softmetal_show_products();
      softmetal_arrive(start + place.has_keys());
      if (span + 1 < spans_end) {
        source = quads_source<S>(part, (span + 1) * kSpan + own_key, p);
        quads_fetch_key(key, keys, source, half_of);
      }
      // The values of the span before are there.
      if (told != 0) {
        softmetal_wait_for_copies_but<1>();
        softmetal_show_products();
        softmetal_arrive(told);
      }
      told = start + place.has_values();
      place.next();
    }
    softmetal_wait_for_copies_but<0>();
    softmetal_show_products();
    softmetal_arrive(told);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } while (part.next(not_finite));
}

// ---- rows -----------------------------------------------------------------------------------------------------------

// The simdgroup's 16 rows of q, of which there are `rows`, as left operands: [head size / 8][64 rows of the
// warpgroup][16 bytes].
template <typename T, typename C>
METAL_FUNC void quads_load_q(threadgroup uint4* to, device const T* from, ulong width, uint rows, uint lane) {
  const uint row = lane % 16;
  MATRIX_ROLLED for (uint i = lane / 16; i < ATTENTION_HEAD_SIZE / 32; i += 2) {
    uint4 lots[4];
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) lots[j] =
        row < rows ? attention_eight<C>(from + row * width + i / 2 * 64 + j * 16 + i % 2 * 8) : uint4(0);
    quads_put_four(to + i * 4 * 64 + row, 64, lots);
  }
}

// Begins with the scores of a span: lane l has numbers 4 t and 4 t + 1 of row l / 4, 4 t + 2 and 4 t + 3 of the one
// eight below, of keys 8 t + 2 (l % 4) and the next, in the order they lie in.
template <typename C>
METAL_FUNC void quads_begin_scores(thread float (&scores)[32], uint q, uint keys) {
  ulong left = softmetal_right(q, kQuadsEight), right = softmetal_right(keys, kQuadsEight);
  uint first = 0, others = 1;
  softmetal_settle(left, right, first);
  softmetal_settle(left, right, others);
  softmetal_begin_products();
  MATRIX_UNROLL for (uint k = 0; k < QUADS_SIXTEENS; ++k) softmetal_multiply_both<is_same_v<C, half>>(
      scores, left + k * (2 * kQuadsEight / 16), right + k * (2 * kQuadsEight / 16), k == 0 ? first : others);
  softmetal_end_products();
}
// Begins with weights times values, 64 dims.
template <typename C>
METAL_FUNC void quads_begin_values(thread float (&products)[32], thread uint (&weights)[4][4], uint values) {
  ulong right = softmetal_right_turned(values, kQuadsEight);
  uint first = 0, others = 1;
  MATRIX_UNROLL for (uint k = 0; k < 4; ++k) softmetal_settle(weights[k], right, k == 0 ? first : others);
  softmetal_begin_products();
  MATRIX_UNROLL for (uint k = 0; k < 4; ++k) softmetal_multiply_turned<is_same_v<C, half>>(
      products, weights[k], right + k * (256 / 16), k == 0 ? first : others);
  softmetal_end_products();
}

// Weights of 64 keys, as left operands, from the scores of 16 rows, and what the sums of the lane's two rows are
// multiplied with: attention_softmax on registers. `high` and `low`: what the rows see.
template <bool Whole, typename C>
METAL_FUNC void quads_weights(thread const float (&scores)[32], thread uint (&weights)[4][4],
                              thread float2 (&totals)[2], thread float2 (&factors)[2], uint first_key, uint position,
                              uint rows, float scale, uint lane) {
  MATRIX_UNROLL for (uint h = 0; h < 2; ++h) {
    const uint row = h * 8 + lane / 4;
    const uint high = row < rows ? position + row + 1 : 0;
    const uint low = ATTENTION_WINDOW > 0 && high > ATTENTION_WINDOW ? high - ATTENTION_WINDOW : 0;
    float found[16];
    float best = kMasked;
    MATRIX_UNROLL for (uint i = 0; i < 16; ++i) {
      const uint key = first_key + i / 4 * 16 + lane % 4 * 4 + i % 4;
      const bool seen = Whole || (key >= low && key < high);
      found[i] = seen ? scores[i / 2 * 4 + h * 2 + i % 2] * scale : kMasked;
      best = max(best, found[i]);
    }
    best = max(best, simd_shuffle_xor(best, 1));
    best = max(best, simd_shuffle_xor(best, 2));
    float sum = 0;
    MATRIX_UNROLL for (uint i = 0; i < 16; i += 2) {
      float2 exact;
      MATRIX_UNROLL for (uint b = 0; b < 2; ++b) {
        const uint key = first_key + i / 4 * 16 + lane % 4 * 4 + i % 4 + b;
        const bool seen = Whole || (key >= low && key < high);
        exact[b] = seen ? power_of_two(found[i + b] - best) : 0.0f;
      }
      const vec<C, 2> two = rounded_two<C>(exact);
      sum += float(two.x);
      sum += float(two.y);
      weights[i / 4][i % 4 / 2 * 2 + h] = as_type<uint>(two);
    }
    sum += simd_shuffle_xor(sum, 1);
    sum += simd_shuffle_xor(sum, 2);
    factors[h] =
        Whole ? attention_fold(totals[h], float2(best, sum)) : attention_fold_seen(totals[h], float2(best, sum));
  }
}

// sums = sums * factor + products * next factor, each row by its own two numbers.
METAL_FUNC void quads_add(thread float (&sums)[32], thread const float (&products)[32], thread const float2* factors) {
  MATRIX_UNROLL for (uint i = 0; i < 32; ++i) sums[i] =
      fma(sums[i], factors[i / 2 % 2].x, products[i] * factors[i / 2 % 2].y);
}

METAL_FUNC void quads_release(uint barrier, uint lane) {
  simdgroup_barrier(mem_flags::mem_none);
  if (lane == 0) softmetal_arrive(barrier);
}

template <typename T, typename C>
METAL_FUNC void quads_rows(QuadsPart part, threadgroup uchar* memory, threadgroup atomic_uint* not_finite,
                           device T* out, constant AttentionParams& p, uint head, uint first_row, uint own_row,
                           uint own_rows, uint simdgroup, uint lane) {
  const uint own_position = part.position + own_row;
  const uint start = softmetal_address(memory);
  const uint q = start + QUADS_Q + simdgroup / 4 * (64 * ATTENTION_HEAD_SIZE * 2);
  QuadsPlace scored = {0, 0}, weighed = {0, 0};
  // What all of the simdgroup's rows see: up to the first one's own key, from where the last one's window begins.
  const uint own_last = own_position + 16;
  const uint whole_to = own_rows == 16 ? own_position + 1 : 0;
  const uint whole_from = ATTENTION_WINDOW > 0 && own_last > ATTENTION_WINDOW ? own_last - ATTENTION_WINDOW : 0;
  threadgroup float4* kept =
      (threadgroup float4*)(memory + QUADS_KEPT) + simdgroup * (ATTENTION_HEAD_SIZE / 8 * 32) + lane;
  constexpr uint kHalves = 2;  // of the most dims
  const uint halves = ATTENTION_HEAD_SIZE / 64;

  do {
    float2 totals[2], split_totals[2];
    float sums[kHalves][32];
    MATRIX_UNROLL for (uint h = 0; h < 2; ++h) totals[h] = split_totals[h] = float2(kMasked, 0);
    MATRIX_UNROLL for (uint n = 0; n < halves; ++n) MATRIX_UNROLL for (uint i = 0; i < 32; ++i) sums[n][i] = 0.0f;
    MATRIX_UNROLL for (uint n = 0; n < ATTENTION_HEAD_SIZE / 8; ++n) kept[n * 32] = float4(0.0f);
    const uint spans_end = (part.end + kSpan - 1) / kSpan;
    uint span = part.begin / kSpan;
    // Set by the first product, whatever they are; numbers that a compiler knows it would set between products.
    float scores[32], products[32];
    MATRIX_UNROLL for (uint i = 0; i < 32; ++i) scores[i] = products[i] = as_type<float>(lane);
    softmetal_wait(start + scored.has_keys(), scored.phase);
    quads_begin_scores<C>(scores, q, start + scored.keys());
    softmetal_wait_for_products<0>();
    quads_release(start + scored.wants_keys(), lane);
    scored.next();
    MATRIX_ROLLED for (; span < spans_end; ++span) {
      const uint first_key = span * kSpan;
      const bool more = span + 1 < spans_end;
      uint weights[4][4];
      float2 factors[2];
      if (first_key >= whole_from && first_key + kSpan <= whole_to)
        quads_weights<true, C>(scores, weights, split_totals, factors, first_key, own_position, own_rows, p.scale,
                               lane);
      else
        quads_weights<false, C>(scores, weights, split_totals, factors, first_key, own_position, own_rows, p.scale,
                                lane);
      softmetal_wait(start + weighed.has_values(), weighed.phase);
      quads_begin_values<C>(products, weights, start + weighed.values());
      // Behind the last span these are made of what lies there, for nobody.
      if (more) softmetal_wait(start + scored.has_keys(), scored.phase);
      quads_begin_scores<C>(scores, q, start + scored.keys());
      softmetal_wait_for_products<1>();
      quads_add(sums[0], products, factors);
      if (halves > 1) {
        quads_begin_values<C>(products, weights, start + weighed.values() + 8 * kQuadsEight);
        softmetal_wait_for_products<0>();
        quads_release(start + weighed.wants_values(), lane);
        quads_add(sums[1], products, factors);
      } else {
        quads_release(start + weighed.wants_values(), lane);
        softmetal_wait_for_products<0>();
      }
      weighed.next();
      if (more) {
        quads_release(start + scored.wants_keys(), lane);
        scored.next();
      }
      if (((first_key + kSpan) & (p.split - 1)) != 0 && more) continue;  // a power of two
      // The sums of a split are folded into those of all before it and begin anew.
      MATRIX_UNROLL for (uint h = 0; h < 2; ++h) {
        factors[h] = attention_fold_seen(totals[h], split_totals[h]);
        split_totals[h] = float2(kMasked, 0);
      }
      MATRIX_UNROLL for (uint n = 0; n < halves; ++n) MATRIX_UNROLL for (uint t = 0; t < 8; ++t) {
        threadgroup float4* own = kept + (n * 8 + t) * 32;
        float4 four = *own;
        MATRIX_UNROLL for (uint j = 0; j < 4; ++j) {
          four[j] = fma(four[j], factors[j / 2].x, sums[n][t * 4 + j] * factors[j / 2].y);
          sums[n][t * 4 + j] = 0.0f;
        }
        *own = four;
      }
    }

    const bool all = part.alone == QUADS_POSITIONS;
    MATRIX_UNROLL for (uint h = 0; h < 2; ++h) {
      const uint row = own_row + h * 8 + lane / 4;
      if (row >= own_row + own_rows || !(all || row == part.alone)) continue;
      device T* y = out + (ulong(first_row + row) * p.heads + head) * ATTENTION_HEAD_SIZE + lane % 4 * 2;
      // By its bits, as fast math may not know such numbers.
      constexpr uint kExponent = 0x7f800000;
      uint most = 0;
      MATRIX_ROLLED for (uint n = 0; n < ATTENTION_HEAD_SIZE / 8; ++n) {
        const float4 four = kept[n * 32];
        const float2 two = h == 0 ? four.xy : four.zw;
        most = max(most, max(as_type<uint>(two.x) & kExponent, as_type<uint>(two.y) & kExponent));
        *(device vec<T, 2>*)(y + n * 8) = vec<T, 2>(T(two.x / totals[h].y), T(two.y / totals[h].y));
      }
      if (most == kExponent && all && part.rows > 1)
        atomic_fetch_or_explicit(not_finite + row / 32, 1u << row % 32, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  } while (part.next(not_finite));
}

template <typename T, typename S>
[[kernel, max_total_threads_per_threadgroup(384)]] [[softmetal_together(1)]] void prefill_attention_wide(
    device const T* qkv [[buffer(0)]], device const S* keys [[buffer(1)]], device const S* values [[buffer(2)]],
    device const int* block_table [[buffer(3)]],
    device const int* query_start [[buffer(4)]],  // [S + 1]
    device const int* seq_lens [[buffer(5)]], device T* out [[buffer(6)]], constant AttentionParams& p [[buffer(7)]],
    threadgroup uchar* memory [[threadgroup(0)]],
    uint3 group [[threadgroup_position_in_grid]],  // heads, tile from the last on, sequence
    uint3 groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  typedef typename AttentionNumber<S>::type C;
  constexpr uint kWords = kQuadsRows / 32;  // of a bit for each position of a threadgroup
  threadgroup atomic_uint not_finite[kWords];
  const uint seq = p.first_seq + group.z;
  const uint first_row = uint(query_start[seq]);
  const uint rows = uint(query_start[seq + 1]) - first_row;
  const uint tile_row = (p.first_tile + groups.y - 1 - group.y) * QUADS_POSITIONS;
  if (tile_row >= rows) return;
  const uint head = group.x * ATTENTION_HEADS + simdgroup % ATTENTION_HEADS;
  QuadsPart part;
  part.blocks = block_table + ulong(seq) * p.max_blocks;
  part.kv_head = (group.x * ATTENTION_HEADS + p.skipped) / p.group;
  part.rows = min(QUADS_POSITIONS, rows - tile_row);
  part.length = uint(seq_lens[seq]);
  part.position = part.length - rows + tile_row;
  part.end = part.position + part.rows;
  const uint first_end = part.position + 1;
  part.begin = ATTENTION_WINDOW > 0 && first_end > ATTENTION_WINDOW ? first_end - ATTENTION_WINDOW : 0;
  part.alone = QUADS_POSITIONS;

  if (thread_index < kWords) atomic_store_explicit(not_finite + thread_index, 0u, memory_order_relaxed);
  if (thread_index == 0) {
    for (QuadsPlace place = {0, 0}; place.phase == 0; place.next()) {
      const uint start = softmetal_address(memory);
      softmetal_barrier_begin(start + place.has_keys(), kQuadsBringers);
      softmetal_barrier_begin(start + place.wants_keys(), 8);
      softmetal_barrier_begin(start + place.has_values(), kQuadsBringers);
      softmetal_barrier_begin(start + place.wants_values(), 8);
    }
    softmetal_barriers_begun();
  }
  // The simdgroup's rows: of the tile, and how many there are.
  const uint own_row = simdgroup / ATTENTION_HEADS * 16;
  const uint own_rows = own_row < part.rows ? min(16u, part.rows - own_row) : 0;
  if (simdgroup < 8) {
    const uint width = (p.heads + 2 * p.kv_heads) * ATTENTION_HEAD_SIZE;
    quads_load_q<T, C>(
        (threadgroup uint4*)(memory + QUADS_Q) + simdgroup / 4 * (64 * ATTENTION_HEAD_SIZE / 8) + simdgroup % 4 * 16,
        qkv + ulong(first_row + tile_row + own_row) * width + head * ATTENTION_HEAD_SIZE, width, own_rows, lane);
    softmetal_show_products();
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup < 8) {
    softmetal_take_registers<216>();
    quads_rows<T, C>(part, memory, not_finite, out, p, head, first_row + tile_row, own_row, own_rows, simdgroup, lane);
  } else {
    softmetal_give_registers<72>();
    quads_bring<S>(part, memory, not_finite, keys, values, p, thread_index - 256);
  }
}

// clang-format off
#define QUADS_KERNELS(activation, T, cache, S)                                                                 \
  template [[host_name("prefill_attention_wide_" #activation "_" #cache)]] [[kernel]]                          \
  decltype(prefill_attention_wide<T, S>) prefill_attention_wide<T, S>;
// clang-format on

QUADS_KERNELS(f16, half, f16, half)
#if INGOT_BFLOAT
QUADS_KERNELS(f16, half, bf16, bfloat)
QUADS_KERNELS(bf16, bfloat, f16, half)
QUADS_KERNELS(bf16, bfloat, bf16, bfloat)
#endif

#endif
