#include "backend/cpu/simd/avx512.h"
#define INGOT_ISA avx512
#include "backend/cpu/kernels/isa_kernels.inl"
