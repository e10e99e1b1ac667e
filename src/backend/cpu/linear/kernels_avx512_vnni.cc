#include <immintrin.h>

#define INGOT_VNNI 1
#define INGOT_ISA avx512_vnni
#define INGOT_VEC "backend/cpu/linear/vec_avx512.h"
#include "backend/cpu/linear/isa_kernels.inl"
