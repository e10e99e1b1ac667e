#include <arm_neon.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_DOTPROD 1

namespace ingot::cpu {
namespace neon_dotprod {
namespace {
#include "backend/cpu/linear/vec_neon.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace neon_dotprod

const KernelTable* neon_dotprod_kernels() { return &neon_dotprod::kTable; }

}  // namespace ingot::cpu
