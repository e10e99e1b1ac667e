// The set of this instruction set; included last.
const Kernels& kernels() {
  static constexpr Kernels kKernels = {
      .rms_norm = rms_norm,
      .layer_norm = layer_norm,
      .rotate = rotate,
      .store_kv = store_kv,
      .attend_split = attend_split,
      .reads_cache_directly = kDirect,
      .merge_states = merge_states,
      .finish_state = finish_state,
      .group_maxima = group_maxima,
      .exp_row = exp_row,
      .sum_above = sum_above,
      .count_greater = count_greater,
  };
  return kKernels;
}
