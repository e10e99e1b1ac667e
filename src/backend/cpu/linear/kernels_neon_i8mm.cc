#include <arm_neon.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_DOTPROD 1

namespace ingot::cpu {
namespace neon_i8mm {
namespace {
// In this order: each uses the one before.
#include "backend/cpu/linear/vec_neon.h"

#include "backend/cpu/linear/tiles.h"

#include "backend/cpu/linear/pairs_neon.h"
}  // namespace
}  // namespace neon_i8mm

const KernelTable* neon_i8mm_kernels() { return &neon_i8mm::kPairTable; }

}  // namespace ingot::cpu
