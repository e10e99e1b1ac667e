#include "common.h"

// out[r, 0 .. dim] = in[rows[r], :]
[[kernel]] void gather_rows(device const float* in [[buffer(0)]],  // [T, dim]
                            device const int* rows [[buffer(1)]],  // [R]
                            device float* out [[buffer(2)]],       // [R, width]
                            constant GatherRowsParams& p [[buffer(3)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const uint i = group.x * kRowThreads + thread_index;
  if (i < p.dim) out[ulong(group.y) * p.width + i] = in[ulong(rows[group.y]) * p.dim + i];
}
