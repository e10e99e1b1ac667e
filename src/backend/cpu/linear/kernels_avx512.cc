#include <immintrin.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_VNNI 0

namespace ingot::cpu {
namespace avx512 {
namespace {
#include "backend/cpu/linear/vec_avx512.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace avx512

const KernelTable* avx512_kernels() { return &avx512::kTable; }

}  // namespace ingot::cpu
