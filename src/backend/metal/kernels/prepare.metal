#include "common.h"

// Zeroes blocks, then copies blocks in the order given, in K and V of one layer. A thread does the same word of every
// block, so a copy sees what an earlier one made.
[[kernel]] void prepare_blocks(device uint4* cache [[buffer(0)]],
                               device const int* zeros [[buffer(1)]],     // [zeros]
                               device const int2* copies [[buffer(2)]],   // [copies]: from, to
                               constant PrepareParams& p [[buffer(3)]],
                               uint2 group [[threadgroup_position_in_grid]],  // words, K or V
                               uint thread_index [[thread_index_in_threadgroup]]) {
  const uint word = group.x * kRowThreads + thread_index;
  if (word >= p.words) return;
  device uint4* part = cache + ulong(group.y) * p.v_offset + word;
  for (uint i = 0; i < p.zeros; ++i) part[ulong(zeros[i]) * p.words] = uint4(0);
  for (uint i = 0; i < p.copies; ++i) part[ulong(copies[i].y) * p.words] = part[ulong(copies[i].x) * p.words];
}
