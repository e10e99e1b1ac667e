#pragma once

#include <cstdint>

// For the kernel files. INGOT_UNROLL: short loops over a block of accumulators must vanish, or those go to memory.
#define INGOT_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define INGOT_UNROLL _Pragma("unroll")
#else
#define INGOT_UNROLL _Pragma("GCC unroll 16")
#endif

namespace ingot::cpu {

// Numbers that lie anywhere among bytes.
using AnyInt = int32_t __attribute__((may_alias, aligned(1)));
using AnyFloat = float __attribute__((may_alias, aligned(1)));

}  // namespace ingot::cpu
