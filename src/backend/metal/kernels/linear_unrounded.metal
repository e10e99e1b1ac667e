// out = x W^T of rows in f32 that are not rounded on their way, beside activations of 16 bits: what a router chooses
// experts by. Matrix units have 16 bits, or take long for more, so each lane multiplies for itself: lane l of a
// simdgroup has row l / 4 of a panel, and of every block of four units the one at l % 4, as they lie (linear_formats.h).
//
// A lane's columns are one chain; four lanes are added as a tree, simdgroups, which have equal parts of the blocks, in
// order. Nothing else enters, so that a row has the same bits beside any others.
#include "linear_output.h"

constant uint UNROUNDED_FORMAT [[function_constant(kUnroundedFormat)]];  // PackedFormat of W
constant uint UNROUNDED_ROWS [[function_constant(kUnroundedRows)]];      // of x a threadgroup, up to 8

// Columns col to col + 7 of a row, zeros past the last.
METAL_FUNC Float8 unrounded_x(device const float* row, uint col, uint cols, bool whole) {
  Float8 v;
  if (whole) {
    v.low = ((device const float4*)(row + col))[0];
    v.high = ((device const float4*)(row + col))[1];
    return v;
  }
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.low[i] = col + i < cols ? row[col + i] : 0.0f;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.high[i] = col + 4 + i < cols ? row[col + 4 + i] : 0.0f;
  return v;
}

[[kernel, max_total_threads_per_threadgroup(kUnroundedParts * 32)]] STARTS_EARLY void linear_unrounded(
    device const uchar* w [[buffer(0)]], device const float* x [[buffer(2)]], device const float* bias [[buffer(3)]],
    device uchar* out [[buffer(5)]], constant LinearParams& p [[buffer(6)]],
    threadgroup float* parts [[threadgroup(0)]],  // [kUnroundedParts][UNROUNDED_ROWS][8 outputs]
    uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  const uint ahead = UNROUNDED_ROWS == 1 ? 4 : 1;  // blocks whose loads are in flight together
  const uint cols = p.columns.cols, columns = packed_unit_columns(UNROUNDED_FORMAT);
  const uint blocks = (cols + 4 * columns - 1) / (4 * columns);
  const uint each = (blocks + kUnroundedParts - 1) / kUnroundedParts;
  const uint first = simdgroup * each, last = min(first + each, blocks);
  const uint first_row = group / p.output_groups * UNROUNDED_ROWS;
  const uint first_output = group % p.output_groups * 8;
  const bool whole = (cols % 8 | p.x_stride % 4) == 0;
  const PackedRow row = packed_row(w, p.columns.planes, first_output + lane / 4);

  float sums[8];
  PACKED_UNROLL for (uint r = 0; r < UNROUNDED_ROWS; ++r) sums[r] = 0.0f;
  wait_for_dispatches();
  for (uint block = first; block < last; block += ahead) {
    PackedUnit units[4];
    Float8 alone[4][4];  // one row's columns of those units
    PACKED_UNROLL for (uint i = 0; i < ahead; ++i) {
      const uint unit = min(min(block + i, last - 1) * 4 + lane % 4, (cols - 1) / columns);
      units[i] = packed_load(UNROUNDED_FORMAT, row, unit);
      if (UNROUNDED_ROWS == 1) {
        PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) alone[i][chunk] =
            unrounded_x(x + ulong(first_row) * p.x_stride, unit * columns + chunk * 8, cols, whole);
      }
    }
    PACKED_UNROLL for (uint i = 0; i < ahead; ++i) {
      const uint unit = (block + i) * 4 + lane % 4;
      if (block + i >= last || unit * columns >= cols) continue;
      const PackedScales scales = packed_scales(UNROUNDED_FORMAT, units[i]);
      PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) {
        const Float8 weights = packed_decode(UNROUNDED_FORMAT, units[i], scales, chunk);
        PACKED_UNROLL for (uint r = 0; r < UNROUNDED_ROWS; ++r) {
          const ulong at = min(first_row + r, p.rows - 1);  // of rows that are not there the last one again
          Float8 v = alone[i][chunk];
          if (UNROUNDED_ROWS > 1) v = unrounded_x(x + at * p.x_stride, unit * columns + chunk * 8, cols, whole);
          PACKED_UNROLL for (uint j = 0; j < 4; ++j) sums[r] = fma(weights.low[j], v.low[j], sums[r]);
          PACKED_UNROLL for (uint j = 0; j < 4; ++j) sums[r] = fma(weights.high[j], v.high[j], sums[r]);
        }
      }
    }
  }
  PACKED_UNROLL for (uint r = 0; r < UNROUNDED_ROWS; ++r) {
    sums[r] += simd_shuffle_xor(sums[r], 1);
    sums[r] += simd_shuffle_xor(sums[r], 2);
    if (lane % 4 == 0) parts[(simdgroup * UNROUNDED_ROWS + r) * 8 + lane / 4] = sums[r];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint at_row = first_row + thread_index / 8, output = first_output + thread_index % 8;
  if (thread_index >= UNROUNDED_ROWS * 8 || at_row >= p.rows || output >= p.outputs) return;
  float sum = 0.0f;
  for (uint part = 0; part < kUnroundedParts; ++part) sum += parts[part * UNROUNDED_ROWS * 8 + thread_index];
  if (p.out.bias) sum += bias[output];
  linear_store(p.out, out, ulong(at_row) * p.out.stride + output, sum);
}
