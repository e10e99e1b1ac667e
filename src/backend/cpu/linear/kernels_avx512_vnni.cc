#include <immintrin.h>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/unroll.h"

#define INGOT_VNNI 1

namespace ingot::cpu {
namespace avx512_vnni {
namespace {
#include "backend/cpu/linear/vec_avx512.h"

#include "backend/cpu/linear/tiles.h"
}  // namespace
}  // namespace avx512_vnni

const KernelTable* avx512_vnni_kernels() { return &avx512_vnni::kTable; }

}  // namespace ingot::cpu
