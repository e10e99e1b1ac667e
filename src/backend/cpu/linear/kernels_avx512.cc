#include "backend/cpu/simd/avx512.h"
#define INGOT_VNNI 0
#define INGOT_ISA avx512
#define INGOT_SIMD avx512
#define INGOT_MACHINE "backend/cpu/linear/machine_avx512.h"
#include "backend/cpu/linear/isa_kernels.inl"
