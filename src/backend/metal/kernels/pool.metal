#include "common.h"

constant uint POOL_KIND [[function_constant(kPoolKind)]];           // PoolKind
constant bool POOL_NORMALIZE [[function_constant(kPoolNormalize)]];  // to length 1
constant bool POOL_KEEPS = POOL_KIND != pool_last;

// One sequence a threadgroup, its columns in turn: a thread adds the rows of a column one by one, so that their order is
// the sequence's, whatever was added in the steps before.
[[kernel]] void pool_rows(device const float* in [[buffer(0)]],  // [T, dim]
                          device const int* words [[buffer(1)]],  // from word p.pooled on: first row, rows, before, slot
                          device float* kept [[buffer(2), function_constant(POOL_KEEPS)]],  // [slots, dim]
                          device float* out [[buffer(3)]],                                  // [sequences, dim]
                          constant PoolParams& p [[buffer(4)]],
                          uint sequence [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32];
  device const int* rows = words + p.pooled + sequence * 4;
  const bool begun = rows[2] > 0;
  uint begin = uint(rows[0]), end = begin + uint(rows[1]);
  if (POOL_KIND == pool_last) begin = end - 1;
  if (POOL_KIND == pool_first) end = begun ? begin : begin + 1;
  const float count = float(rows[2] + rows[1]);
  const ulong slot = POOL_KEEPS ? ulong(rows[3]) * p.dim : 0;
  device float* y = out + ulong(sequence) * p.dim;
  float squares = 0.0f;
  for (uint i = thread_index; i < p.dim; i += simdgroups * 32) {
    float value = 0.0f;
    if (POOL_KEEPS && begun) value = kept[slot + i];
    for (uint row = begin; row < end; ++row) value += in[ulong(row) * p.dim + i];
    if (POOL_KEEPS) kept[slot + i] = value;
    if (POOL_KIND == pool_mean) value /= count;
    y[i] = value;
    squares = fma(value, value, squares);
  }
  if (!POOL_NORMALIZE) return;
  squares = simd_sum(squares);
  if (lane == 0) parts[simdgroup] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float length = max(precise::sqrt(simd_sum(lane < simdgroups ? parts[lane] : 0.0f)), 1e-12f);
  for (uint i = thread_index; i < p.dim; i += simdgroups * 32) y[i] /= length;
}
