#include "backend/cpu/kernels/simd_portable.h"
#define INGOT_ISA portable
#include "backend/cpu/kernels/isa_kernels.inl"
