#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/simd/neon.h"

#define INGOT_DOTPROD 1

namespace ingot::cpu {
namespace neon_i8mm {
namespace {
using namespace neon;
// In this order: each uses the one before.
#include "backend/cpu/linear/machine_neon.h"

#include "backend/cpu/linear/tiles.h"

#include "backend/cpu/linear/pairs_neon.h"
}  // namespace
}  // namespace neon_i8mm

const KernelTable* neon_i8mm_kernels() { return &neon_i8mm::kPairTable; }

}  // namespace ingot::cpu
