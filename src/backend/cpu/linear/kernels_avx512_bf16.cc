#include <immintrin.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_VNNI 1
#define INGOT_BF16 1

namespace ingot::cpu {
namespace avx512_bf16 {
namespace {
#include "backend/cpu/linear/vec_avx512.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace avx512_bf16

const KernelTable* avx512_bf16_kernels() { return &avx512_bf16::kTable; }

}  // namespace ingot::cpu
