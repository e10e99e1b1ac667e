#include <arm_neon.h>

#define INGOT_DOTPROD 0
#define INGOT_ISA neon
#define INGOT_VEC "backend/cpu/linear/vec_neon.h"
#include "backend/cpu/linear/isa_kernels.inl"
