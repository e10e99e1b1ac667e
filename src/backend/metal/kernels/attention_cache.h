// How attention reads and writes the paged cache: rotation, rounding to the cache's type, and the way back to matrices.
#pragma once

#include "common.h"

constant uint ATTENTION_HEAD_SIZE [[function_constant(kAttentionHeadSize)]];
constant uint ATTENTION_BLOCK_SIZE [[function_constant(kAttentionBlockSize)]];
constant uint ATTENTION_WINDOW [[function_constant(kAttentionWindow)]];  // 0: none
constant bool ATTENTION_QK_NORM [[function_constant(kAttentionQkNorm)]];
constant uint ATTENTION_SIMDGROUPS [[function_constant(kAttentionSimdgroups)]];  // of a threadgroup
constant uint ATTENTION_ROWS
    [[function_constant(kAttentionRows)]];  // prefill: of a threadgroup, those of its heads counted each
constant bool ATTENTION_ONE_SPAN
    [[function_constant(kAttentionOneSpan)]];  // decode: a threadgroup takes no more than one span
constant bool ATTENTION_TURNED
    [[function_constant(kAttentionTurned)]];  // all dims are rotated, and they are a multiple of 64
constant bool ATTENTION_WIDE = kWideMatrices && ATTENTION_HEAD_SIZE % 32 == 0;  // heads are read 32 dims at a time

// ---- rotation ----

// 1 / rms of a head, or 1. Called by a whole simdgroup, whose lanes may write to the head afterwards.
template <typename T>
static float attention_head_scale(device const T* head, float eps, uint lane) {
  if (!ATTENTION_QK_NORM) return 1;
  float sum = 0;
  for (uint d = lane; d < ATTENTION_HEAD_SIZE; d += 32) sum = fma(float(head[d]), float(head[d]), sum);
  simdgroup_barrier(mem_flags::mem_device);
  return precise::rsqrt(simd_sum(sum) / float(ATTENTION_HEAD_SIZE) + eps);
}

template <typename T>
static float attention_normed(device const T* head, device const float* weight, float scale, uint d) {
  const float x = float(head[d]);
  return ATTENTION_QK_NORM ? x * scale * weight[d] : x;
}

// A head whose dims are all rotated, a multiple of 64, in the registers of a simdgroup. It is loaded at once; norm and
// rotation come later. A lane has D / 32 dims, neighbours two by two where those they turn with are the lane's, too.
static uint attention_dim(uint m, uint lane) {
  return ATTENTION_HEAD_SIZE % 128 == 0 ? m / 2 * 64 + lane * 2 + m % 2 : m * 32 + lane;
}
struct AttentionTurns {
  float2 turn[kMaxHeadSize / 64];
  void load(device const float2* rope, uint lane) {
    MATRIX_UNROLL for (uint m = 0; m < ATTENTION_HEAD_SIZE / 64; ++m) turn[m] = rope[attention_dim(m, lane)];
  }
};
template <typename T>
struct AttentionHead {
  vec<T, 2> x[kMaxHeadSize / 64];
  void load(device const T* head, uint lane) {
    MATRIX_UNROLL for (uint n = 0; n < ATTENTION_HEAD_SIZE / 64; ++n) {
      device const T* first = head + attention_dim(n * 2, lane);
      if (ATTENTION_HEAD_SIZE % 128 == 0)
        x[n] = *(device const vec<T, 2>*)first;
      else
        x[n] = vec<T, 2>(first[0], first[32]);
    }
  }
  float normed(device const float* weight, float scale, uint m, uint lane) const {
    const float raw = float(x[m / 2][m % 2]);
    return ATTENTION_QK_NORM ? raw * scale * weight[attention_dim(m, lane)] : raw;
  }
  template <typename R, typename Sink>
  void rotate(device const float* weight, AttentionTurns turns, float eps, uint lane, thread Sink& sink) const {
    float scale = 1;
    if (ATTENTION_QK_NORM) {
      float sum = 0;
      MATRIX_UNROLL for (uint m = 0; m < ATTENTION_HEAD_SIZE / 32; ++m) {
        const float raw = float(x[m / 2][m % 2]);
        sum = fma(raw, raw, sum);
      }
      scale = precise::rsqrt(simd_sum(sum) / float(ATTENTION_HEAD_SIZE) + eps);
    }
    const uint pairs = ATTENTION_HEAD_SIZE / 64;
    MATRIX_UNROLL for (uint m = 0; m < pairs; m += 2) {
      float low[2], high[2];
      MATRIX_UNROLL for (uint j = 0; j < 2; ++j) {
        if (m + j >= pairs) continue;
        const float a = normed(weight, scale, m + j, lane), b = normed(weight, scale, m + j + pairs, lane);
        const float2 turn = turns.turn[m + j];
        low[j] = float(R(a * turn.x - b * turn.y));
        high[j] = float(R(b * turn.x + a * turn.y));
      }
      const uint d = attention_dim(m, lane), half_dims = ATTENTION_HEAD_SIZE / 2;
      if (ATTENTION_HEAD_SIZE % 128 == 0) {
        sink.take_two(d, low[0], low[1]);
        sink.take_two(d + half_dims, high[0], high[1]);
      } else {
        MATRIX_UNROLL for (uint j = 0; j < 2; ++j) {
          if (m + j >= pairs) continue;
          sink.take(d + j * 32, low[j]);
          sink.take(d + j * 32 + half_dims, high[j]);
        }
      }
    }
  }
};

// Norms and rotates one head; what becomes of its elements, each rounded to R, is the sink's business. Called by a
// whole simdgroup.
template <typename R, typename T, typename Sink>
static void attention_rotate_into(device const T* head, device const float* weight, device const float2* rope,
                                  constant AttentionParams& p, uint lane, thread Sink& sink) {
  if (ATTENTION_TURNED) {
    AttentionTurns turns;
    AttentionHead<T> loaded;
    turns.load(rope, lane);
    loaded.load(head, lane);
    loaded.template rotate<R>(weight, turns, p.norm_eps, lane, sink);
    return;
  }
  const float scale = attention_head_scale(head, p.norm_eps, lane);
  const uint half_dims = p.rope_dims / 2;
  MATRIX_ROLLED for (uint i = lane; i < half_dims; i += 32) {
    const float a = attention_normed(head, weight, scale, i);
    const float b = attention_normed(head, weight, scale, i + half_dims);
    const float2 turn = rope[i];
    sink.take(i, float(R(a * turn.x - b * turn.y)));
    sink.take(i + half_dims, float(R(b * turn.x + a * turn.y)));
  }
  MATRIX_ROLLED for (uint d = p.rope_dims + lane; d < ATTENTION_HEAD_SIZE; d += 32)
      sink.take(d, float(R(attention_normed(head, weight, scale, d))));
}

template <typename Out>
struct AttentionStore {
  threadgroup Out* out;
  void take(uint d, float x) { out[d] = Out(x); }
  void take_two(uint d, float x, float y) { *(threadgroup vec<Out, 2>*)(out + d) = vec<Out, 2>(Out(x), Out(y)); }
};
template <typename Out>
struct AttentionDeviceStore {
  device Out* out;
  void take(uint d, float x) { out[d] = Out(x); }
  void take_two(uint d, float x, float y) { *(device vec<Out, 2>*)(out + d) = vec<Out, 2>(Out(x), Out(y)); }
};
// To both places.
template <typename Out>
struct AttentionStoreTwice {
  AttentionDeviceStore<Out> first;
  AttentionStore<Out> second;
  void take(uint d, float x) {
    first.take(d, x);
    second.take(d, x);
  }
  void take_two(uint d, float x, float y) {
    first.take_two(d, x, y);
    second.take_two(d, x, y);
  }
};
template <typename R, typename T, typename Out>
static void attention_rotate(device const T* head, device const float* weight, device const float2* rope,
                             constant AttentionParams& p, uint lane, device Out* out) {
  AttentionDeviceStore<Out> store = {out};
  attention_rotate_into<R>(head, weight, rope, p, lane, store);
}

// ---- the cache: K and V of one layer, [blocks, kv heads, block size, head size] of S ----
//
// With int8 the numbers of a block and KV head are followed by their scales, float [block size]. Products are made of
// halves then; the scale of a key is a factor of its score, that of a value one of its weight.

template <typename S>
struct AttentionNumber {
  typedef S type;
};
template <>
struct AttentionNumber<int8_t> {
  typedef half type;
};

// From a block and KV head to the next.
template <typename S>
static ulong attention_head_stride() {
  return ATTENTION_BLOCK_SIZE * (ATTENTION_HEAD_SIZE + (sizeof(S) == 1 ? 4 : 0));
}
// Where a row begins, by slot, or eight of them.
template <typename S>
static ulong attention_row_offset(ulong slot, uint kv_heads, uint kv_head) {
  return (slot / ATTENTION_BLOCK_SIZE * kv_heads + kv_head) * attention_head_stride<S>() +
         slot % ATTENTION_BLOCK_SIZE * ATTENTION_HEAD_SIZE;
}
// Where a key begins, by the number of its block and KV head.
template <typename S>
static ulong attention_head_offset(uint head, uint key) {
  return ulong(head) * attention_head_stride<S>() + key % ATTENTION_BLOCK_SIZE * ATTENTION_HEAD_SIZE;
}
// The query heads of a KV head: ranks that share the heads may have some of them only.
static uint attention_first_query(constant AttentionParams& p, uint kv_head) {
  return max(kv_head * p.group, p.skipped) - p.skipped;
}
static uint attention_queries(constant AttentionParams& p, uint kv_head) {
  return min((kv_head + 1) * p.group - p.skipped, p.heads) - attention_first_query(p, kv_head);
}

static ulong attention_slot(device const int* blocks, uint key) {
  return ulong(uint(blocks[key / ATTENTION_BLOCK_SIZE])) * ATTENTION_BLOCK_SIZE + key % ATTENTION_BLOCK_SIZE;
}
template <typename S>
static ulong attention_tile_offset(device const int* blocks, uint kv_heads, uint kv_head, uint key) {
  return attention_row_offset<S>(attention_slot(blocks, key), kv_heads, kv_head);
}
// The scale of a row, as an offset in floats.
static ulong attention_scale_offset(ulong slot, uint kv_heads, uint kv_head) {
  return ((slot / ATTENTION_BLOCK_SIZE * kv_heads + kv_head) * attention_head_stride<int8_t>() +
          ATTENTION_BLOCK_SIZE * ATTENTION_HEAD_SIZE) /
             4 +
         slot % ATTENTION_BLOCK_SIZE;
}

struct AttentionLargest {
  uint bits;  // of the largest magnitude; those of a NaN are above all others
  void take(uint, float x) { bits = max(bits, as_type<uint>(x) & 0x7fffffffu); }
  void take_two(uint d, float x, float y) {
    take(d, x);
    take(d, y);
  }
};
struct AttentionQuantize {
  device int8_t* out;
  float inverse;
  void take(uint d, float x) { out[d] = inverse == 0 ? int8_t(0) : int8_t(clamp(rint(x * inverse), -127.0f, 127.0f)); }
  void take_two(uint d, float x, float y) {
    take(d, x);
    take(d + 1, y);
  }
};
// Writes the scale of a row and says how to write its integers; both depend on this row alone. Called by a whole
// simdgroup. A row with an infinity or a NaN gets a scale that keeps it visible; one too small for its scale to have an
// inverse becomes zero.
static AttentionQuantize attention_quantize(device int8_t* cache, ulong slot, uint kv_heads, uint kv_head,
                                            AttentionLargest found, uint lane) {
  const uint bits = simd_max(found.bits);
  const float largest = as_type<float>(bits);
  const bool finite = bits < 0x7f800000u;
  const bool tiny = finite && largest < 1e-30f;
  if (lane == 0) {
    device float* scales = (device float*)cache;
    scales[attention_scale_offset(slot, kv_heads, kv_head)] = tiny     ? 0.0f
                                                              : finite ? largest / 127.0f
                                                                       : as_type<float>(0x7fc00000u);
  }
  AttentionQuantize sink = {cache + attention_row_offset<int8_t>(slot, kv_heads, kv_head),
                            tiny || !finite ? 0.0f : 127.0f / largest};
  return sink;
}

// Norms, rotates and writes one key, also to `copy` [head size] where numbers are no integers and there is one. Called
// by a whole simdgroup, and so is the next.
template <typename T, typename S>
static void attention_write_key(device const T* head, device const float* weight, device const float2* rope,
                                constant AttentionParams& p, uint lane, device S* cache, ulong slot, uint kv_head,
                                threadgroup S* copy) {
  AttentionStoreTwice<S> store = {{cache + attention_row_offset<S>(slot, p.kv_heads, kv_head)}, {copy}};
  attention_rotate_into<float>(head, weight, rope, p, lane, store);
}
template <typename T, typename S>
static void attention_write_key(device const T* head, device const float* weight, device const float2* rope,
                                constant AttentionParams& p, uint lane, device S* cache, ulong slot, uint kv_head) {
  attention_rotate<float>(head, weight, rope, p, lane, cache + attention_row_offset<S>(slot, p.kv_heads, kv_head));
}
template <typename T>
static void attention_write_key(device const T* head, device const float* weight, device const float2* rope,
                                constant AttentionParams& p, uint lane, device int8_t* cache, ulong slot,
                                uint kv_head) {
  AttentionLargest largest = {0};
  attention_rotate_into<float>(head, weight, rope, p, lane, largest);
  AttentionQuantize sink = attention_quantize(cache, slot, p.kv_heads, kv_head, largest, lane);
  attention_rotate_into<float>(head, weight, rope, p, lane, sink);
}
template <typename T>
static void attention_write_key(device const T* head, device const float* weight, device const float2* rope,
                                constant AttentionParams& p, uint lane, device int8_t* cache, ulong slot, uint kv_head,
                                threadgroup half* copy) {
  attention_write_key(head, weight, rope, p, lane, cache, slot, kv_head);
}
template <typename T, typename Sink>
static void attention_copy_into(device const T* head, uint lane, thread Sink& sink) {
  T x[kMaxHeadSize / 32];
  MATRIX_UNROLL for (uint n = 0; n < kMaxHeadSize / 32; ++n) if (n * 32 + lane < ATTENTION_HEAD_SIZE) x[n] =
      head[n * 32 + lane];
  MATRIX_UNROLL for (uint n = 0; n < kMaxHeadSize / 32; ++n) if (n * 32 + lane < ATTENTION_HEAD_SIZE)
      sink.take(n * 32 + lane, float(x[n]));
}
template <typename T, typename S>
static void attention_write_value(device const T* head, constant AttentionParams& p, uint lane, device S* cache,
                                  ulong slot, uint kv_head, threadgroup S* copy) {
  AttentionStoreTwice<S> store = {{cache + attention_row_offset<S>(slot, p.kv_heads, kv_head)}, {copy}};
  attention_copy_into(head, lane, store);
}
template <typename T, typename S>
static void attention_write_value(device const T* head, constant AttentionParams& p, uint lane, device S* cache,
                                  ulong slot, uint kv_head) {
  AttentionDeviceStore<S> store = {cache + attention_row_offset<S>(slot, p.kv_heads, kv_head)};
  attention_copy_into(head, lane, store);
}
template <typename T>
static void attention_write_value(device const T* head, constant AttentionParams& p, uint lane, device int8_t* cache,
                                  ulong slot, uint kv_head) {
  AttentionLargest largest = {0};
  attention_copy_into(head, lane, largest);
  AttentionQuantize sink = attention_quantize(cache, slot, p.kv_heads, kv_head, largest, lane);
  attention_copy_into(head, lane, sink);
}
template <typename T>
static void attention_write_value(device const T* head, constant AttentionParams& p, uint lane, device int8_t* cache,
                                  ulong slot, uint kv_head, threadgroup half* copy) {
  attention_write_value(head, p, lane, cache, slot, kv_head);
}

// Eight keys by up to 32 dims (a multiple of 8) as matrices, zero for those that `count` (matrix_rows) has not: what
// lies behind the end of a sequence is not ours to read.
template <typename C>
static void attention_load(thread simdgroup_matrix<C, 8, 8>* m, device const C* from, bool transpose, uint dims,
                           uint count, threadgroup C* part, uint lane) {
  if (count == 8) {
    MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < dims)
        simdgroup_load(m[j], from + j * 8, ATTENTION_HEAD_SIZE, ulong2(0, 0), transpose);
    return;
  }
  for (uint i = lane; i < 256; i += 32)
    part[i] =
        matrix_has_row(count, i / 32) && i % 32 < dims ? from[ulong(i / 32) * ATTENTION_HEAD_SIZE + i % 32] : C(0);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  MATRIX_UNROLL for (uint j = 0; j < 4; ++j) if (j * 8 < dims)
      simdgroup_load(m[j], part + j * 8, 32, ulong2(0, 0), transpose);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
static void attention_load(thread simdgroup_matrix<half, 8, 8>* m, device const int8_t* from, bool transpose, uint dims,
                           uint count, threadgroup half* part, uint lane) {
  matrix_load_integers(m, from, ATTENTION_HEAD_SIZE, transpose, dims, count, part, lane);
}

// Scales of the keys of a span, then of its values: float [2][64], 0 for keys outside [begin, end). Called by a whole
// simdgroup, with a barrier before they are read.
template <typename S>
static void attention_scales(threadgroup float* scales, device const S* keys, device const S* values,
                             device const int* blocks, uint kv_heads, uint kv_head, uint first_key, uint begin,
                             uint end, uint lane) {}
static void attention_scales(threadgroup float* scales, device const int8_t* keys, device const int8_t* values,
                             device const int* blocks, uint kv_heads, uint kv_head, uint first_key, uint begin,
                             uint end, uint lane) {
  for (uint i = lane; i < kSpan; i += 32) {
    const bool there = first_key + i >= begin && first_key + i < end;
    const ulong at = there ? attention_scale_offset(attention_slot(blocks, first_key + i), kv_heads, kv_head) : 0;
    scales[i] = there ? ((device const float*)keys)[at] : 0.0f;
    scales[kSpan + i] = there ? ((device const float*)values)[at] : 0.0f;
  }
}
