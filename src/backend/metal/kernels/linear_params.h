#pragma once

#include "linear_output.h"

// What all kernels of kernels/linear.metal share: constants, parameters, and the order in which columns are summed.

constant uint LINEAR_FORMAT [[function_constant(kLinearFormat)]];       // PackedFormat of W
constant uint LINEAR_FORMAT_UP [[function_constant(kLinearFormatUp)]];  // of the second matrix, when gated
constant uint LINEAR_ROWS
    [[function_constant(kLinearRows)]];                  // few rows: at a time, 8 to 64; tiles: of a tile, 32 to 128
constant uint LINEAR_X [[function_constant(kLinearX)]];  // PackedFormat of the activations: f32, f16 or bf16
// Few rows: 8 outputs times this a simdgroup.
constant uint LINEAR_MATRIX [[function_constant(kLinearMatrix)]];
// Few rows: steps loaded together, 1 to 4; 0: any format, unit by unit.
constant uint LINEAR_UNROLL [[function_constant(kLinearUnroll)]];
constant uint LINEAR_SLICES [[function_constant(kLinearSlices)]];  // few rows: slices; 0: LinearParams says how many
// Few rows: simdgroups that take x from threadgroup memory, each with outputs of its own; 0: none do.
constant uint LINEAR_SHARED [[function_constant(kLinearShared)]];
constant bool LINEAR_SPLIT [[function_constant(kLinearSplit)]];      // shared: a threadgroup takes one slice
constant bool LINEAR_EXPERTS [[function_constant(kLinearExperts)]];  // W is a stack of experts, see LinearParams
constant bool LINEAR_CUT [[function_constant(kLinearCut)]];          // W is in cuts, see LinearParams
constant uint LINEAR_TILE_OUTPUTS [[function_constant(kLinearTileOutputs)]];  // tiles: rows of W, 64 or 128
// Tiles: simdgroups that share the rows of x, 2 or 4, and outputs that each of them has, 32 or 64.
constant uint LINEAR_TILE_PARTS [[function_constant(kLinearTileParts)]];
constant uint LINEAR_TILE_WIDTH [[function_constant(kLinearTileWidth)]];
constant uint LINEAR_TILE_TURN [[function_constant(kLinearTileTurn)]];  // tiles: columns of a turn, 32 or 64
constant uint LINEAR_BUFFERS [[function_constant(kLinearBuffers)]];     // tiles: turns in threadgroup memory, 1 to 4
// Tiles: what needs no decoding is copied to threadgroup memory beside the threads, LINEAR_BUFFERS - 1 turns ahead.
constant bool LINEAR_COPIES [[function_constant(kLinearCopies)]];
// Tiles: the slices so far wait in threadgroup memory, so that registers hold sums of twice as many outputs.
constant bool LINEAR_TOTALS [[function_constant(kLinearTotals)]];

// ---- the order of a sum ---------------------------------------------------------------------------------------------
//
// A *step* is four units of a row: 32 columns of numbers, 64 of codes of 8 bits, 128 of others. Its columns meet the
// matrix unit in runs of 8, first the first run of each of the four units, then the second of each, and so on: four
// runs are four matrices, 16 columns an instruction where the device has such. That is how lanes that hold a unit each
// can multiply without an exchange. Steps follow one another in a chain; a slice of the columns (LinearParams) is one
// chain from zero, and slices are added in order. Columns that ranks could share are cut first, and every cut has
// slices of its own. Nothing else enters: any number of rows, few rows or tiles, has the same bits.
//
// Tiles take a *turn* of 32 or 64 columns at a time, four or eight runs: of 64 two steps of numbers, one of bytes, half
// a one of others.

METAL_FUNC uint linear_step_columns(uint format) { return 4 * packed_unit_columns(format); }
// What turns and steps both are whole of.
METAL_FUNC uint linear_block_columns(uint format) { return max(linear_step_columns(format), kLinearTurn); }
METAL_FUNC uint linear_blocks(uint format, uint cols) {
  return (cols + linear_block_columns(format) - 1) / linear_block_columns(format);
}
// The first column of run `run` of a turn of 32 columns, and of one of 64.
METAL_FUNC uint linear_short_run_column(uint format, uint turn, uint run) {
  const uint columns = packed_unit_columns(format), chunks = columns / 8;
  return turn / chunks * (4 * columns) + run * columns + turn % chunks * 8;
}
METAL_FUNC uint linear_run_column(uint format, uint turn, uint run) {
  return linear_short_run_column(format, turn * 2 + run / 4, run % 4);
}

// ---- eight columns as the matrix unit takes them --------------------------------------------------------------------

template <typename T>
struct LinearEight {
  vec<T, 2> at[4];
};

template <typename T>
METAL_FUNC LinearEight<T> linear_zeros() {
  LinearEight<T> e;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) e.at[i] = vec<T, 2>(T(0.0f));
  return e;
}
template <typename T>
METAL_FUNC LinearEight<T> linear_of_bits(uint4 bits) {
  LinearEight<T> e;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) e.at[i] = MatrixPair<T>::of(bits[i]);
  return e;
}
template <typename T>
METAL_FUNC LinearEight<T> linear_of_floats(Float8 v) {
  LinearEight<T> e;
  e.at[0] = vec<T, 2>(v.low.xy);
  e.at[1] = vec<T, 2>(v.low.zw);
  e.at[2] = vec<T, 2>(v.high.xy);
  e.at[3] = vec<T, 2>(v.high.zw);
  return e;
}
template <typename T>
METAL_FUNC void linear_put(threadgroup T* to, LinearEight<T> e) {
  PACKED_UNROLL for (uint i = 0; i < 2; ++i)((threadgroup vec<T, 4>*)to)[i] = vec<T, 4>(e.at[2 * i], e.at[2 * i + 1]);
}

METAL_FUNC float linear_x(device const uchar* x, ulong i) {
  if (LINEAR_X == packed_f32) return ((device const float*)x)[i];
  if (LINEAR_X == packed_f16) return float(((device const half*)x)[i]);
  return as_type<float>(uint(((device const ushort*)x)[i]) << 16);
}
// Columns col to col + 7 of a row of x, counted from `begin` on, where there are `cols`; zeros past the last. Those of
// 16 bits are T's own.
template <typename T>
METAL_FUNC LinearEight<T> linear_x8(device const uchar* x, uint begin, uint cols, uint stride, ulong row, uint col) {
  const ulong at = row * stride + begin + col;
  if (col >= cols) return linear_zeros<T>();
  if (sizeof(T) == 2 && (begin | cols | stride) % 8 == 0) return linear_of_bits<T>(((device const uint4*)x)[at / 8]);
  if (sizeof(T) == 2) {
    uint4 bits = uint4(0);
    PACKED_UNROLL for (uint i = 0; i < 8; ++i) if (col + i < cols) bits[i / 2] |=
        uint(((device const ushort*)x)[at + i]) << (i % 2 * 16);
    return linear_of_bits<T>(bits);
  }
  Float8 v;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.low[i] = col + i < cols ? linear_x(x, at + i) : 0.0f;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) v.high[i] = col + 4 + i < cols ? linear_x(x, at + 4 + i) : 0.0f;
  return linear_of_floats<T>(v);
}

// Codes times scales become halves, packed_boost() times too large; where T is float they are what the format says.
template <typename T>
METAL_FUNC constexpr bool linear_is_boosted(uint format) {
  return format > packed_bf16 && sizeof(T) == 2;
}
template <typename T>
METAL_FUNC float linear_unboost(uint format, float sum) {
  return linear_is_boosted<T>(format) ? sum * (1.0f / packed_boost(format)) : sum;
}

// A unit with its scales, before any arithmetic on the codes.
template <typename T>
struct LinearUnit {
  PackedUnit unit;
  PackedHalfScales scales;  // boosted
};
// Zeros where the row has no such unit.
template <typename T>
METAL_FUNC LinearUnit<T> linear_load_unit(uint format, PackedRow row, uint unit, bool exists) {
  LinearUnit<T> u;
  u.unit.codes = u.unit.more = uint4(0);
  u.unit.high = uint2(0);
  u.unit.d = u.unit.sub = 0;
  u.unit.numbers = row.numbers;
  const bool picks = linear_is_boosted<T>(format) && packed_kind(format) == packed_super32_min;
  if (exists) u.unit = picks ? packed_load_codes(format, row, unit) : packed_load(format, row, unit);
  if (linear_is_boosted<T>(format)) {
    if (picks)
      u.scales = packed_pick(format, exists ? packed_load_meta(row, unit / 8) : uint4(0), unit % 8 / 4,
                             packed_picker(format, unit % 4));
    else
      u.scales = packed_half_scales(format, packed_scales(format, u.unit));
  }
  return u;
}
template <typename T>
METAL_FUNC LinearEight<T> linear_decode(uint format, thread const LinearUnit<T>& u, uint chunk) {
  if (format <= packed_bf16 && sizeof(T) == 2) return linear_of_bits<T>(u.unit.codes);
  if (!linear_is_boosted<T>(format))
    return linear_of_floats<T>(packed_decode(format, u.unit, packed_scales(format, u.unit), chunk));
  LinearEight<T> e;
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) e.at[i] =
      vec<T, 2>(float2(packed_decode_half(format, u.unit, u.scales, chunk, i)));
  return e;
}

// ---- cuts -----------------------------------------------------------------------------------------------------------

METAL_FUNC uint linear_cuts(constant LinearParams& p) { return LINEAR_CUT ? p.cuts : 1; }
METAL_FUNC constant LinearColumns& linear_columns(constant LinearParams& p, constant LinearColumns* cuts, uint cut) {
  return LINEAR_CUT ? cuts[cut] : p.columns;
}
METAL_FUNC device const uchar* linear_cut_weights(device const uchar* w, constant LinearColumns& columns) {
  return LINEAR_CUT ? w + ulong(columns.offset) * 16 : w;
}
METAL_FUNC uint linear_first(constant LinearColumns& columns) { return LINEAR_CUT ? columns.first : 0; }
// The sums so far of the first cuts and of the others, and with that of `cut`: nothing of them but their order is known
// before. linear_joined() is all of it.
METAL_FUNC float2 linear_join(constant LinearParams& p, uint cut, float2 before, float sum) {
  if (cut < p.left) return float2(cut == 0 ? sum : before.x + sum, 0.0f);
  return float2(before.x, cut == p.left ? sum : before.y + sum);
}
METAL_FUNC float linear_joined(constant LinearParams& p, float2 sums) {
  return p.left < p.cuts ? sums.x + sums.y : sums.x;
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
  item.last_row = p.rows - 1;
  item.first_weight = 0;
  if (LINEAR_EXPERTS) {
    item.exists = row_group < uint(items[0]);
    if (item.exists) {
      const uint expert = uint(items[1 + 2 * row_group]);
      item.first_row = uint(items[2 + 2 * row_group]);
      item.last_row = uint(starts[expert + 1]) - 1;
      item.first_weight = (expert - p.first_expert) * p.outputs;
    }
  }
  return item;
}

// Which row of x row `row` of `out` takes. Rows past the last repeat it and are not stored.
METAL_FUNC uint linear_x_row(constant LinearParams& p, device const int* order, uint row, uint last_row) {
  const uint at = min(row, last_row);
  return LINEAR_EXPERTS && p.per_token > 0 ? uint(order[at]) / p.per_token : at;
}
