#include "backend/cpu/simd/neon.h"
#define INGOT_ISA neon
#include "backend/cpu/kernels/isa_kernels.inl"
