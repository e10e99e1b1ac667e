#include <arm_neon.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_DOTPROD 0

namespace ingot::cpu {
namespace neon {
namespace {
#include "backend/cpu/linear/vec_neon.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace neon

const KernelTable* neon_kernels() { return &neon::kTable; }

}  // namespace ingot::cpu
