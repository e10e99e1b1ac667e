#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/simd_avx2.h"

namespace ingot::cpu::avx2 {
namespace {
#include "backend/cpu/kernels/math.inl"

#include "backend/cpu/kernels/attention.inl"
#include "backend/cpu/kernels/norm.inl"
#include "backend/cpu/kernels/sampling.inl"
}  // namespace
#include "backend/cpu/kernels/set.inl"
}  // namespace ingot::cpu::avx2
