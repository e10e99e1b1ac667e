#pragma once

#include "sm/types.h"

namespace metal {

// The set of lanes for which a predicate holds.
struct simd_vote {
  typedef ulong vote_t;
  vote_t bits = 0;
  simd_vote() = default;
  SM_INLINE explicit simd_vote(vote_t b) : bits(b) {}
  SM_INLINE explicit operator vote_t() const { return bits; }
  SM_INLINE bool all() const { return (uint)bits == ~0u; }
  SM_INLINE bool any() const { return bits != 0; }
};

}  // namespace metal
