// Operations of a simdgroup. Every lane hands in a record; the last lane to arrive computes for all of them. Lanes that
// are elsewhere (divergence) take no part, as on the device.
#pragma once

#include "sm/integer.h"
#include "sm/math.h"
#include "sm/runtime.h"
#include "sm/vote.h"

// Lanes read each other's records here, in step: nothing for a sanitizer to look at.
#pragma clang attribute push(__attribute__((no_sanitize("thread", "kernel-address"))), apply_to = function)

namespace sm {

template <class T>
struct Lane {
  T value;
  T result;
  uint operand;
};

template <class T>
SM_INLINE Lane<T>& lane_of(void** args, uint lane) {
  return *(Lane<T>*)args[lane];
}

template <class F>
SM_INLINE void for_lanes(uint mask, F f) {
  if (mask == ~0u) {
    for (uint lane = 0; lane < 32; ++lane) f(lane);
  } else {
    for (uint left = mask; left; left &= left - 1) f((uint)__builtin_ctz(left));
  }
}

// Halves the lanes until one is left: a fixed order, whatever the order of arrival. Absent lanes are skipped.
template <class T, class F>
SM_INLINE T reduce(void** args, uint mask, F f) {
  T values[32];
  if (mask == ~0u) {
    for (uint lane = 0; lane < 32; ++lane) values[lane] = lane_of<T>(args, lane).value;
    for (uint width = 16; width; width >>= 1) {
      for (uint lane = 0; lane < width; ++lane) values[lane] = f(values[lane], values[lane + width]);
    }
    return values[0];
  }
  for_lanes(mask, [&](uint lane) { values[lane] = lane_of<T>(args, lane).value; });
  for (uint width = 16; width; width >>= 1) {
    for (uint lane = 0; lane < width; ++lane) {
      bool low = mask >> lane & 1, high = mask >> (lane + width) & 1;
      if (low && high) values[lane] = f(values[lane], values[lane + width]);
      if (!low && high) values[lane] = values[lane + width];
      if (high) mask |= 1u << lane;
    }
  }
  return values[0];
}

}  // namespace sm

namespace metal {

#define SM_REDUCTION(name, expression)                                                      \
  template <class T>                                                                        \
  SM_COLLECTIVE T name(T value, SM_SITE_PARAMETERS) {                                       \
    sm::Lane<T> record{value, value, 0};                                                    \
    sm::softmetal_runtime->collective(                                                      \
        &record,                                                                            \
        [](void** args, uint mask) {                                                        \
          T all = sm::reduce<T>(args, mask, [](T x, T y) -> T { return (T)(expression); }); \
          sm::for_lanes(mask, [&](uint lane) { sm::lane_of<T>(args, lane).result = all; }); \
        },                                                                                  \
        SM_SITE);                                                                           \
    return record.result;                                                                   \
  }
SM_REDUCTION(simd_sum, x + y)
SM_REDUCTION(simd_product, x* y)
SM_REDUCTION(simd_max, max(x, y))
SM_REDUCTION(simd_min, min(x, y))
SM_REDUCTION(simd_and, x& y)
SM_REDUCTION(simd_or, x | y)
SM_REDUCTION(simd_xor, x ^ y)
// `source` is the lane read, an expression of `lane` and `k`. A lane that takes no part gives garbage on the device;
// here its reader keeps its own value.
#define SM_SHUFFLE(name, source)                                                                                       \
  template <class T>                                                                                                   \
  SM_COLLECTIVE T name(T value, ushort operand, SM_SITE_PARAMETERS) {                                                  \
    sm::Lane<T> record{value, value, operand};                                                                         \
    sm::softmetal_runtime->collective(                                                                                 \
        &record,                                                                                                       \
        [](void** args, uint mask) {                                                                                   \
          sm::for_lanes(mask, [&](uint lane) {                                                                         \
            const uint k = sm::lane_of<T>(args, lane).operand;                                                         \
            const uint from = (source);                                                                                \
            if (from < 32 && (mask >> from & 1)) sm::lane_of<T>(args, lane).result = sm::lane_of<T>(args, from).value; \
          });                                                                                                          \
        },                                                                                                             \
        SM_SITE);                                                                                                      \
    return record.result;                                                                                              \
  }
SM_SHUFFLE(simd_shuffle, k)
SM_SHUFFLE(simd_broadcast, k)
SM_SHUFFLE(simd_shuffle_xor, lane ^ k)
SM_SHUFFLE(simd_shuffle_down, lane + k)
SM_SHUFFLE(simd_shuffle_up, lane - k)
SM_SHUFFLE(simd_shuffle_rotate_down, (lane + k) & 31)
SM_SHUFFLE(simd_shuffle_rotate_up, (lane - k) & 31)
SM_SHUFFLE(quad_shuffle, (lane & ~3u) + (k & 3))
SM_SHUFFLE(quad_broadcast, (lane & ~3u) + (k & 3))
SM_SHUFFLE(quad_shuffle_xor, lane ^ (k & 3))
SM_SHUFFLE(quad_shuffle_down, (lane & 3) + k < 4 ? lane + k : 32)
SM_SHUFFLE(quad_shuffle_up, (lane & 3) >= k ? lane - k : 32)

template <class T>
SM_INLINE T simd_shuffle_and_fill_down(T value, T fill, ushort k, SM_SITE_PARAMETERS) {
  T moved = simd_shuffle_down(value, k, sm_file, sm_line, sm_column);
  uint lane = sm::self()->lane;
  T filled = simd_shuffle(fill, (ushort)((lane + k) & 31), sm_file, sm_line, sm_column);
  return lane + k < 32 ? moved : filled;
}
template <class T>
SM_INLINE T simd_shuffle_and_fill_up(T value, T fill, ushort k, SM_SITE_PARAMETERS) {
  T moved = simd_shuffle_up(value, k, sm_file, sm_line, sm_column);
  uint lane = sm::self()->lane;
  T filled = simd_shuffle(fill, (ushort)((lane - k) & 31), sm_file, sm_line, sm_column);
  return lane >= k ? moved : filled;
}

#define SM_PREFIX(name, type, identity, before, after, step) \
  template <class T>                                         \
  SM_COLLECTIVE T name(T value, SM_SITE_PARAMETERS) {        \
    sm::Lane<T> record{value, value, 0};                     \
    sm::softmetal_runtime->collective(                       \
        &record,                                             \
        [](void** args, uint mask) {                         \
          T total = (T)(identity);                           \
          sm::for_lanes(mask, [&](uint lane) {               \
            auto& r = sm::lane_of<T>(args, lane);            \
            const T x = r.value;                             \
            if (before) r.result = total;                    \
            total = (T)(step);                               \
            if (after) r.result = total;                     \
          });                                                \
        },                                                   \
        SM_SITE);                                            \
    return record.result;                                    \
  }
SM_PREFIX(simd_prefix_inclusive_sum, T, 0, false, true, total + x)
SM_PREFIX(simd_prefix_exclusive_sum, T, 0, true, false, total + x)
SM_PREFIX(simd_prefix_inclusive_product, T, 1, false, true, total* x)
SM_PREFIX(simd_prefix_exclusive_product, T, 1, true, false, total* x)

template <class T>
SM_COLLECTIVE T simd_broadcast_first(T value, SM_SITE_PARAMETERS) {
  sm::Lane<T> record{value, value, 0};
  sm::softmetal_runtime->collective(
      &record,
      [](void** args, uint mask) {
        const T first = sm::lane_of<T>(args, (uint)__builtin_ctz(mask)).value;
        sm::for_lanes(mask, [&](uint lane) { sm::lane_of<T>(args, lane).result = first; });
      },
      SM_SITE);
  return record.result;
}

template <class T>
SM_COLLECTIVE T quad_sum(T value, SM_SITE_PARAMETERS) {
  sm::Lane<T> record{value, value, 0};
  sm::softmetal_runtime->collective(
      &record,
      [](void** args, uint mask) {
        T sums[32] = {};
        sm::for_lanes(mask,
                      [&](uint lane) { sums[lane / 4] = (T)(sums[lane / 4] + sm::lane_of<T>(args, lane).value); });
        sm::for_lanes(mask, [&](uint lane) { sm::lane_of<T>(args, lane).result = sums[lane / 4]; });
      },
      SM_SITE);
  return record.result;
}

SM_COLLECTIVE inline simd_vote simd_ballot(bool predicate, SM_SITE_PARAMETERS) {
  sm::Lane<uint> record{predicate, 0, 0};
  sm::softmetal_runtime->collective(
      &record,
      [](void** args, uint mask) {
        uint votes = 0;
        sm::for_lanes(mask, [&](uint lane) { votes |= sm::lane_of<uint>(args, lane).value << lane; });
        sm::for_lanes(mask, [&](uint lane) { sm::lane_of<uint>(args, lane).result = votes; });
      },
      SM_SITE);
  return simd_vote((ulong)record.result);
}
SM_INLINE simd_vote simd_active_threads_mask(SM_SITE_PARAMETERS) {
  return simd_ballot(true, sm_file, sm_line, sm_column);
}
SM_INLINE bool simd_any(bool b, SM_SITE_PARAMETERS) { return simd_or((uint)b, sm_file, sm_line, sm_column) != 0; }
SM_INLINE bool simd_all(bool b, SM_SITE_PARAMETERS) { return simd_and((uint)b, sm_file, sm_line, sm_column) != 0; }
SM_INLINE bool simd_is_first(SM_SITE_PARAMETERS) {
  uint mask = (uint)(ulong)simd_ballot(true, sm_file, sm_line, sm_column);
  return (mask & ((1u << sm::self()->lane) - 1)) == 0;
}
SM_INLINE bool simd_is_helper_thread() { return false; }

}  // namespace metal

#pragma clang attribute pop
