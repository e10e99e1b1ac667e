// Operations of a simdgroup. Shuffles take 16 or 32 bits, reductions of 32 bits are one instruction.
#pragma once

#include "sm/agx/runtime.h"
#include "sm/integer.h"
#include "sm/math.h"
#include "sm/vote.h"

#define SM_SIMD_FUNCTION __attribute__((convergent, const))
#define SM_SIMD_SHUFFLE(name)                               \
  SM_SIMD_FUNCTION uint name(int scope, uint word, uint k); \
  SM_SIMD_FUNCTION ushort name(int scope, ushort word, uint k);
SM_SIMD_SHUFFLE(__spirv_GroupNonUniformShuffle)
SM_SIMD_SHUFFLE(__spirv_GroupNonUniformShuffleXor)
SM_SIMD_SHUFFLE(__spirv_GroupNonUniformShuffleUp)
SM_SIMD_SHUFFLE(__spirv_GroupNonUniformShuffleDown)
SM_SIMD_SHUFFLE(__spirv_GroupNonUniformBroadcast)
#define SM_SIMD_REDUCE(name, T) SM_SIMD_FUNCTION T __spirv_GroupNonUniform##name(int scope, int operation, T value);
SM_SIMD_REDUCE(FAdd, float)
SM_SIMD_REDUCE(FMax, float)
SM_SIMD_REDUCE(FMin, float)
SM_SIMD_REDUCE(IAdd, uint)
SM_SIMD_REDUCE(UMax, uint)
SM_SIMD_REDUCE(UMin, uint)
SM_SIMD_REDUCE(BitwiseAnd, uint)
SM_SIMD_REDUCE(BitwiseOr, uint)
SM_SIMD_REDUCE(BitwiseXor, uint)
typedef uint sm_ballot __attribute__((ext_vector_type(4)));
SM_SIMD_FUNCTION sm_ballot __spirv_GroupNonUniformBallot(int scope, bool predicate);
SM_SIMD_FUNCTION bool __spirv_GroupNonUniformAny(int scope, bool predicate);
SM_SIMD_FUNCTION bool __spirv_GroupNonUniformAll(int scope, bool predicate);

namespace sm {

// A value of any size, moved 32 bits at a time, or 16 where that is all of it.
template <class T, class F>
SM_COLLECTIVE T by_words(T value, F move) {
  if constexpr (sizeof(T) == 2) {
    return metal::as_type<T>(move(metal::as_type<ushort>(value)));
  } else {
    constexpr uint kWords = (sizeof(T) + 3) / 4;
    uint words[kWords] = {};
    __builtin_memcpy(words, &value, sizeof(T));
#pragma clang loop unroll(full)
    for (uint i = 0; i < kWords; ++i) words[i] = move(words[i]);
    __builtin_memcpy(&value, words, sizeof(T));
    return value;
  }
}

}  // namespace sm

namespace metal {

#define SM_SHUFFLE(name, mode, operand)                                                                               \
  template <class T>                                                                                                  \
  SM_COLLECTIVE T name(T value, ushort k) {                                                                           \
    return sm::by_words(                                                                                              \
        value, [=](auto word) { return __spirv_GroupNonUniform##mode(sm::kSimdgroupScope, word, (uint)(operand)); }); \
  }
SM_SHUFFLE(simd_shuffle, Shuffle, k)
SM_SHUFFLE(simd_broadcast, Broadcast, k)
SM_SHUFFLE(simd_shuffle_xor, ShuffleXor, k)
SM_SHUFFLE(simd_shuffle_down, ShuffleDown, k)
SM_SHUFFLE(simd_shuffle_up, ShuffleUp, k)
SM_SHUFFLE(simd_shuffle_rotate_down, Shuffle, (sm::lane() + k) & 31)
SM_SHUFFLE(simd_shuffle_rotate_up, Shuffle, (sm::lane() - k) & 31)
SM_SHUFFLE(quad_shuffle, Shuffle, (sm::lane() & ~3u) + (k & 3))
SM_SHUFFLE(quad_broadcast, Shuffle, (sm::lane() & ~3u) + (k & 3))
SM_SHUFFLE(quad_shuffle_xor, ShuffleXor, k & 3)

template <class T>
SM_COLLECTIVE T simd_broadcast_first(T value) {
  return simd_broadcast(value, 0);
}

// Operation: 0 reduces, 2 is the sum of the lanes before.
#define SM_REDUCTION(name, T, mode) \
  SM_COLLECTIVE T name(T x) { return (T)__spirv_GroupNonUniform##mode(sm::kSimdgroupScope, 0, x); }
SM_REDUCTION(simd_sum, float, FAdd)
SM_REDUCTION(simd_max, float, FMax)
SM_REDUCTION(simd_min, float, FMin)
SM_REDUCTION(simd_sum, uint, IAdd)
SM_REDUCTION(simd_max, uint, UMax)
SM_REDUCTION(simd_min, uint, UMin)
SM_REDUCTION(simd_and, uint, BitwiseAnd)
SM_REDUCTION(simd_or, uint, BitwiseOr)
SM_REDUCTION(simd_xor, uint, BitwiseXor)
SM_COLLECTIVE int simd_sum(int x) { return (int)simd_sum((uint)x); }
SM_COLLECTIVE uint simd_prefix_exclusive_sum(uint x) { return __spirv_GroupNonUniformIAdd(sm::kSimdgroupScope, 2, x); }
SM_COLLECTIVE uint simd_prefix_inclusive_sum(uint x) { return simd_prefix_exclusive_sum(x) + x; }
template <class T>
SM_COLLECTIVE T quad_sum(T x) {
  x = (T)(x + quad_shuffle_xor(x, 1));
  return (T)(x + quad_shuffle_xor(x, 2));
}

SM_COLLECTIVE simd_vote simd_ballot(bool predicate) {
  return simd_vote((ulong)__spirv_GroupNonUniformBallot(sm::kSimdgroupScope, predicate).x);
}
SM_COLLECTIVE simd_vote simd_active_threads_mask() { return simd_ballot(true); }
SM_COLLECTIVE bool simd_any(bool b) { return __spirv_GroupNonUniformAny(sm::kSimdgroupScope, b); }
SM_COLLECTIVE bool simd_all(bool b) { return __spirv_GroupNonUniformAll(sm::kSimdgroupScope, b); }
SM_INLINE bool simd_is_first() { return sm::lane() == 0; }
SM_INLINE bool simd_is_helper_thread() { return false; }

}  // namespace metal
