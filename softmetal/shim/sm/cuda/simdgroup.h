// Operations of a simdgroup, by shuffles. Reductions halve the lanes in the same order as the CPU's.
#pragma once

#include "sm/cuda/runtime.h"
#include "sm/integer.h"
#include "sm/math.h"
#include "sm/vote.h"

namespace sm {

// A value of any size, moved 32 bits at a time.
template <class T, class F>
SM_COLLECTIVE T by_words(T value, F move) {
  constexpr uint kWords = (sizeof(T) + 3) / 4;
  uint words[kWords] = {};
  __builtin_memcpy(words, &value, sizeof(T));
#pragma clang loop unroll(full)
  for (uint i = 0; i < kWords; ++i) words[i] = move(words[i]);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

}  // namespace sm

namespace metal {

#define SM_SHUFFLE(name, mode, operand, clamp)                                              \
  template <class T>                                                                        \
  SM_COLLECTIVE T name(T value, ushort k) {                                                 \
    return sm::by_words(value, [=](uint word) {                                             \
      return (uint)__nvvm_shfl_sync_##mode##_i32(sm::kAllLanes, (int)word, operand, clamp); \
    });                                                                                     \
  }
SM_SHUFFLE(simd_shuffle, idx, k, 31)
SM_SHUFFLE(simd_broadcast, idx, k, 31)
SM_SHUFFLE(simd_shuffle_xor, bfly, k, 31)
SM_SHUFFLE(simd_shuffle_down, down, k, 31)
SM_SHUFFLE(simd_shuffle_up, up, k, 0)
SM_SHUFFLE(simd_shuffle_rotate_down, idx, (sm::lane() + k) & 31, 31)
SM_SHUFFLE(simd_shuffle_rotate_up, idx, (sm::lane() - k) & 31, 31)
SM_SHUFFLE(quad_shuffle, idx, (sm::lane() & ~3u) + (k & 3), 31)
SM_SHUFFLE(quad_broadcast, idx, (sm::lane() & ~3u) + (k & 3), 31)
SM_SHUFFLE(quad_shuffle_xor, bfly, k & 3, 31)
SM_SHUFFLE(quad_shuffle_down, idx, (sm::lane() & 3) + k < 4 ? sm::lane() + k : sm::lane(), 31)
SM_SHUFFLE(quad_shuffle_up, idx, (sm::lane() & 3) >= k ? sm::lane() - k : sm::lane(), 31)

template <class T>
SM_COLLECTIVE T simd_broadcast_first(T value) {
  return simd_broadcast(value, 0);
}
template <class T>
SM_COLLECTIVE T simd_shuffle_and_fill_down(T value, T fill, ushort k) {
  const T moved = simd_shuffle_down(value, k);
  const T filled = simd_shuffle(fill, (ushort)((sm::lane() + k) & 31));
  return sm::lane() + k < 32 ? moved : filled;
}
template <class T>
SM_COLLECTIVE T simd_shuffle_and_fill_up(T value, T fill, ushort k) {
  const T moved = simd_shuffle_up(value, k);
  const T filled = simd_shuffle(fill, (ushort)((sm::lane() - k) & 31));
  return sm::lane() >= k ? moved : filled;
}

#define SM_REDUCTION(name, expression)                                                       \
  template <class T>                                                                         \
  SM_COLLECTIVE T name(T x) {                                                                \
    _Pragma("clang loop unroll(full)") for (ushort distance = 16; distance; distance /= 2) { \
      const T y = simd_shuffle_xor(x, distance);                                             \
      x = (T)(expression);                                                                   \
    }                                                                                        \
    return x;                                                                                \
  }
SM_REDUCTION(simd_sum, x + y)
SM_REDUCTION(simd_product, x* y)
SM_REDUCTION(simd_max, max(x, y))
SM_REDUCTION(simd_min, min(x, y))
SM_REDUCTION(simd_and, x& y)
SM_REDUCTION(simd_or, x | y)
SM_REDUCTION(simd_xor, x ^ y)

// Of integers of 32 bits in one instruction.
SM_COLLECTIVE uint simd_sum(uint x) { return (uint)__nvvm_redux_sync_add((int)x, (int)sm::kAllLanes); }
SM_COLLECTIVE uint simd_max(uint x) { return __nvvm_redux_sync_umax(x, (int)sm::kAllLanes); }
SM_COLLECTIVE uint simd_min(uint x) { return __nvvm_redux_sync_umin(x, (int)sm::kAllLanes); }

template <class T>
SM_COLLECTIVE T quad_sum(T x) {
  x = (T)(x + quad_shuffle_xor(x, 1));
  return (T)(x + quad_shuffle_xor(x, 2));
}

#define SM_PREFIX(name, identity, op)                                                            \
  template <class T>                                                                             \
  SM_COLLECTIVE T simd_prefix_inclusive_##name(T x) {                                            \
    _Pragma("clang loop unroll(full)") for (ushort distance = 1; distance < 32; distance *= 2) { \
      const T y = simd_shuffle_up(x, distance);                                                  \
      if (sm::lane() >= distance) x = (T)(x op y);                                               \
    }                                                                                            \
    return x;                                                                                    \
  }                                                                                              \
  template <class T>                                                                             \
  SM_COLLECTIVE T simd_prefix_exclusive_##name(T x) {                                            \
    const T y = simd_shuffle_up(simd_prefix_inclusive_##name(x), 1);                             \
    return sm::lane() ? y : (T)(identity);                                                       \
  }
SM_PREFIX(sum, 0, +)
SM_PREFIX(product, 1, *)

SM_COLLECTIVE simd_vote simd_ballot(bool predicate) {
  return simd_vote((ulong)__nvvm_vote_ballot_sync(sm::kAllLanes, predicate));
}
SM_COLLECTIVE simd_vote simd_active_threads_mask() { return simd_ballot(true); }
SM_COLLECTIVE bool simd_any(bool b) { return __nvvm_vote_any_sync(sm::kAllLanes, b); }
SM_COLLECTIVE bool simd_all(bool b) { return __nvvm_vote_all_sync(sm::kAllLanes, b); }
SM_INLINE bool simd_is_first() { return sm::lane() == 0; }
SM_INLINE bool simd_is_helper_thread() { return false; }

}  // namespace metal
