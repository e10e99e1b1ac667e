#include "backend/cpu/simd/avx2.h"
#define INGOT_ISA avx2
#include "backend/cpu/kernels/isa_kernels.inl"
