#include <immintrin.h>

#define INGOT_ISA avx2
#define INGOT_VEC "backend/cpu/linear/vec_avx2.h"
#include "backend/cpu/linear/isa_kernels.inl"
