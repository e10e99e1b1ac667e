#pragma once

#include "linear_output.h"

// What all kernels of kernels/linear.metal share: constants, parameters, activations in and results out.

constant uint LINEAR_FORMAT [[function_constant(kLinearFormat)]];       // PackedFormat of W
constant uint LINEAR_FORMAT_UP [[function_constant(kLinearFormatUp)]];  // of the second matrix, when gated
// Few rows: at a time; 1, 2, 4, 8 or 16. Matrix: 8, 16, 32 or 64. 0: none, tiles only.
constant uint LINEAR_ROWS [[function_constant(kLinearRows)]];
// Few rows: outputs of a lane group; 1, 2 or 4. Matrix: simdgroups that take x from threadgroup memory, each with
// outputs of its own; 1: none do; 0: none do, and they are a multiple of the slices.
constant uint LINEAR_OUTPUTS [[function_constant(kLinearOutputs)]];
// Few rows: lanes that share a dot product; 1 to 32. Matrix: slices of the columns; 1 to 8.
constant uint LINEAR_LANES [[function_constant(kLinearLanes)]];
constant uint LINEAR_UNROLL
    [[function_constant(kLinearUnroll)]];  // units (matrix: of four lanes) loaded together; 1 to 4
constant uint LINEAR_TILE_ROWS [[function_constant(kLinearTileRows)]];  // tiles: 32 or 64; 0: none, few rows only
constant uint LINEAR_X [[function_constant(kLinearX)]];  // PackedFormat of the activations: f32, f16 or bf16
constant uint LINEAR_MATRIX
    [[function_constant(kLinearMatrix)]];  // matrix: 8 outputs times this a simdgroup; 0: few rows
constant bool LINEAR_ALIGNED
    [[function_constant(kLinearAligned)]];  // cols % 8 == 0: rows of x can be read 16 bytes at a time
constant bool LINEAR_EXPERTS [[function_constant(kLinearExperts)]];  // W is a stack of experts, see LinearParams
constant bool LINEAR_SPLIT
    [[function_constant(kLinearSplit)]];  // matrix: a threadgroup takes one slice, see linear_shared
// The others: linear_output.h

// ---- activations in and out -----------------------------------------------------------------------------------------

METAL_FUNC float linear_x(device const uchar* x, ulong i) {
  if (LINEAR_X == packed_f32) return ((device const float*)x)[i];
  if (LINEAR_X == packed_f16) return float(((device const half*)x)[i]);
  return as_type<float>(uint(((device const ushort*)x)[i]) << 16);
}

// Columns col to col + 7 of a row; zeros past the last.
METAL_FUNC Float8 linear_x8(device const uchar* x, uint cols, ulong row, uint col) {
  const ulong at = row * cols + col;
  Float8 v;
  if (LINEAR_ALIGNED) {
    PackedUnit u;
    u.codes = LINEAR_X == packed_f32 ? ((device const uint4*)x)[at / 4] : ((device const uint4*)x)[at / 8];
    if (LINEAR_X == packed_f32) u.more = ((device const uint4*)x)[at / 4 + 1];
    PackedScales none;
    v = packed_decode(LINEAR_X, u, none, 0);
  } else {
    PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.low[i] = col + i < cols ? linear_x(x, at + i) : 0.0f;
    PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.high[i] = col + 4 + i < cols ? linear_x(x, at + 4 + i) : 0.0f;
  }
  return v;
}

METAL_FUNC float linear_value(device const float* bias, device const float* bias_up, uint output, float value,
                              float up) {
  if (LINEAR_HAS_BIAS) value += bias[output];
  if (LINEAR_GATED) {
    if (LINEAR_HAS_BIAS_UP) up += bias_up[output];
    value = linear_activation(value) * up;
  } else if (LINEAR_ACTIVATION != 0) {
    value = linear_activation(value);
  }
  return value;
}
METAL_FUNC void linear_finish(constant LinearParams& p, device const float* bias, device const float* bias_up,
                              device uchar* out, uint row, uint output, float value, float up) {
  linear_store(out, ulong(row) * p.out_stride + output, linear_value(bias, bias_up, output, value, up));
}

// ---- rows of experts ------------------------------------------------------------------------------------------------

// Rows of `out` that a row group has, and the first row of W of their expert.
struct LinearItem {
  uint first_row, last_row, first_weight;
  bool exists;
};
METAL_FUNC LinearItem linear_item(constant LinearParams& p, device const int* items, device const int* starts,
                                  uint row_group) {
  LinearItem item;
  item.exists = true;
  item.first_row = row_group * LINEAR_ROWS;
  item.last_row = p.few_rows - 1;
  item.first_weight = 0;
  if (LINEAR_EXPERTS) {
    item.exists = row_group < uint(items[0]);
    if (item.exists) {
      const uint expert = uint(items[1 + 2 * row_group]);
      item.first_row = uint(items[2 + 2 * row_group]);
      item.last_row = uint(starts[expert + 1]) - 1;
      item.first_weight = expert * p.outputs;
    }
  }
  return item;
}

// Which row of x row `row` of `out` takes. Rows past the last repeat it and are not stored.
METAL_FUNC uint linear_x_row(constant LinearParams& p, device const int* order, uint row, uint last_row) {
  const uint at = min(row, last_row);
  return LINEAR_EXPERTS && p.per_token > 0 ? uint(order[at]) / p.per_token : at;
}
