#include "backend/cpu/simd/avx2.h"
#define INGOT_ISA avx2
#define INGOT_SIMD avx2
#define INGOT_MACHINE "backend/cpu/linear/machine_avx2.h"
#include "backend/cpu/linear/isa_kernels.inl"
