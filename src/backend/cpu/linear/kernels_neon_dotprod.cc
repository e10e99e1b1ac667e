#include "backend/cpu/simd/neon.h"
#define INGOT_DOTPROD 1
#define INGOT_ISA neon_dotprod
#define INGOT_SIMD neon
#define INGOT_MACHINE "backend/cpu/linear/machine_neon.h"
#include "backend/cpu/linear/isa_kernels.inl"
