#pragma once

// For the kernel files: full unrolling of short loops over a tile's rows, which keeps arrays of vectors in registers.
#define INGOT_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define INGOT_UNROLL _Pragma("unroll")
#else
#define INGOT_UNROLL _Pragma("GCC unroll 16")
#endif
