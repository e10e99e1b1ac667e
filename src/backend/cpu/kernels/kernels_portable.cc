#include "backend/cpu/kernels/kernels.h"
#include "backend/cpu/kernels/simd_portable.h"

namespace ingot::cpu::portable {
namespace {
#include "backend/cpu/kernels/math.inl"

#include "backend/cpu/kernels/attention.inl"
#include "backend/cpu/kernels/norm.inl"
#include "backend/cpu/kernels/sampling.inl"
}  // namespace
#include "backend/cpu/kernels/set.inl"
}  // namespace ingot::cpu::portable
