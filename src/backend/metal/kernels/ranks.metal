// What ranks that share a model send one another, on its way into mailboxes and out of them: see ranks.cc.
#include "common.h"

// to = from, word by word.
[[kernel]] void copy_words(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
                           constant uint& count [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  if (i < count) to[i] = from[i];
}

// out = (0 + 1) + (2 + 3) + bias, or out += that, of what ranks have of a sum.
[[kernel]] void add_parts(device const float* first [[buffer(0)]],  // [count]
                          device const float* rest [[buffer(1)]],   // [parts but one, stride]
                          device const float* bias [[buffer(2)]],   // [dim], bound either way
                          device float* out [[buffer(3)]],          // [count]
                          constant AddPartsParams& p [[buffer(4)]], uint i [[thread_position_in_grid]]) {
  if (i >= p.count) return;
  float sum = first[i];
  if (p.left == 2) sum += rest[i];
  if (p.right > 0) {
    device const float* from = rest + ulong(p.left - 1) * p.stride;
    float other = from[i];
    if (p.right == 2) other += from[ulong(p.stride) + i];
    sum += other;
  }
  if (p.bias != 0) sum += bias[i % p.dim];
  out[i] = p.accumulate != 0 ? out[i] + sum : sum;
}

// out[row, first + i] = in[row, i]
[[kernel]] void place_columns(device const float* in [[buffer(0)]],  // [rows, width]
                              device float* out [[buffer(1)]],       // [rows, stride]
                              constant PlaceColumnsParams& p [[buffer(2)]],
                              uint2 at [[thread_position_in_grid]]) {  // column, row
  if (at.x < p.width) out[ulong(at.y) * p.stride + p.first + at.x] = in[ulong(at.y) * p.width + at.x];
}
