// The set of one instruction set. A file that is compiled for it sets INGOT_ISA, its name, and includes this behind the
// header of its vectors (simd/).
#include "backend/cpu/kernels/kernels.h"

namespace ingot::cpu::INGOT_ISA {
namespace {
#include "backend/cpu/kernels/math.inl"

#include "backend/cpu/kernels/ahead.inl"

#include "backend/cpu/kernels/attention.inl"
#include "backend/cpu/kernels/norm.inl"
#include "backend/cpu/kernels/sampling.inl"
}  // namespace

const Kernels& kernels() {
  static constexpr Kernels kKernels = {
      .rms_norm = rms_norm,
      .layer_norm = layer_norm,
      .rotate = rotate,
      .store_kv = store_kv,
      .attend_split = attend_split,
      .reads_cache_directly = kWidensFast,
      .merge_states = merge_states,
      .finish_state = finish_state,
      .group_maxima = group_maxima,
      .exp_row = exp_row,
      .sum_above = sum_above,
      .count_greater = count_greater,
  };
  return kKernels;
}

}  // namespace ingot::cpu::INGOT_ISA
