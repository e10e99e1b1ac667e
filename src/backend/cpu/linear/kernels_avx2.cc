#include <immintrin.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

namespace ingot::cpu {
namespace avx2 {
namespace {
#include "backend/cpu/linear/vec_avx2.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace avx2

const KernelTable* avx2_kernels() { return &avx2::kTable; }

}  // namespace ingot::cpu
