#include "backend/cpu/simd/portable.h"
#define INGOT_ISA portable
#include "backend/cpu/kernels/isa_kernels.inl"
