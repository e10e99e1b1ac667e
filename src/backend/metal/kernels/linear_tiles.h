#pragma once

#include "linear_params.h"

// Many rows: LINEAR_ROWS rows by LINEAR_TILE_OUTPUTS rows of W, a turn of 64 columns at a time through threadgroup
// memory, so that weights are loaded and decoded once for all of the rows. Of a gated product half of the rows of W are
// those of the first matrix, and half the same ones of the second. The next turn is on its way while one is multiplied.

template <typename T>
struct LinearTile {
  threadgroup T* memory;  // [buffers][rows of x, then of W][kLinearTileStride]
  uint first_row;
  PackedRow row;        // of W, of which this thread brings a part of a turn
  uint cols;            // of that row: 0 where there is none
  uint tile_row, side;  // which row of the tile, and which part
  uint thread_index;
  uint part_row, part_output;  // what this simdgroup multiplies: LINEAR_ROWS / LINEAR_TILE_PARTS rows by 32
};

METAL_FUNC uint linear_tile_threads() { return LINEAR_TILE_PARTS * LINEAR_TILE_OUTPUTS; }
METAL_FUNC uint linear_tile_eights() { return LINEAR_ROWS / 8 / LINEAR_TILE_PARTS; }    // of rows, of a simdgroup
METAL_FUNC uint linear_tile_runs() { return LINEAR_ROWS * 8 / linear_tile_threads(); }  // of x, of a thread

template <typename T>
METAL_FUNC void linear_tile_x(thread LinearEight<T>* runs, uint format, device const uchar* x, constant LinearParams& p,
                              constant LinearColumns& columns, thread const LinearTile<T>& tile, uint turn) {
  PACKED_UNROLL for (uint i = 0; i < linear_tile_runs(); ++i) {
    const uint at = i * linear_tile_threads() + tile.thread_index, row = tile.first_row + at / 8;
    runs[i] = linear_zeros<T>();
    if (row < p.rows)
      runs[i] = linear_x8<T>(x, linear_first(columns), columns.cols, p.x_stride, row,
                             linear_run_column(format, turn, at % 8));
  }
}
// Units of this thread's part of a turn, of which there are eight of numbers, else four; of 32 columns each for two
// turns.
METAL_FUNC uint linear_tile_own_units(uint format) {
  return (packed_unit_columns(format) == 8 ? 8 : 4) / LINEAR_TILE_PARTS;
}
template <typename T>
METAL_FUNC void linear_tile_units(thread LinearUnit<T>* units, uint format, thread const LinearTile<T>& tile,
                                  uint turn) {
  const uint columns = packed_unit_columns(format), count = linear_tile_own_units(format);
  const uint first = ((columns == 32 ? turn / 2 : turn) * LINEAR_TILE_PARTS + tile.side) * count;
  PACKED_UNROLL for (uint i = 0; i < count; ++i) units[i] =
      linear_load_unit<T>(format, tile.row, first + i, (first + i) * columns < tile.cols);
}
// Runs `chunk` and, but of numbers, chunk + 1 of the units.
template <typename T>
METAL_FUNC void linear_tile_put(threadgroup T* to, uint format, thread const LinearUnit<T>* units, uint side,
                                uint chunk) {
  const uint count = linear_tile_own_units(format);
  if (packed_unit_columns(format) == 8) {
    PACKED_UNROLL for (uint i = 0; i < count; ++i)
        linear_put(to + (side * count + i) * 8, linear_decode<T>(format, units[i], 0));
  } else {
    PACKED_UNROLL for (uint c = 0; c < 2; ++c) PACKED_UNROLL for (uint i = 0; i < count; ++i)
        linear_put(to + (c * 4 + side * count + i) * 8, linear_decode<T>(format, units[i], chunk + c));
  }
}

template <typename T>
METAL_FUNC void linear_tile_multiply(thread simdgroup_float8x8 (&sums)[8][4], threadgroup const T* xs,
                                     threadgroup const T* ws) {
  const uint high = linear_tile_eights();
  if (sizeof(T) == 4 || !kWideMatrices) {
    for (uint k = 0; k < kLinearTurn; k += 8) {
      simdgroup_matrix<T, 8, 8> b[4];
      PACKED_UNROLL for (uint j = 0; j < 4; ++j)
          simdgroup_load(b[j], ws + j * 8 * kLinearTileStride + k, kLinearTileStride, ulong2(0, 0), true);
      PACKED_UNROLL for (uint i = 0; i < high; ++i) {
        simdgroup_matrix<T, 8, 8> a;
        simdgroup_load(a, xs + i * 8 * kLinearTileStride + k, kLinearTileStride);
        PACKED_UNROLL for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i][j], a, b[j], sums[i][j]);
      }
    }
    return;
  }
  PACKED_UNROLL for (uint k = 0; k < kLinearTurn; k += 32) {
    threadgroup T* none = nullptr;
    simdgroup_matrix<T, 8, 8> b[4][4];
    PACKED_UNROLL for (uint j = 0; j < 4; ++j)
        matrix_load_wide(b[j], ws + j * 8 * kLinearTileStride + k, kLinearTileStride, true, 8, none, 0);
    PACKED_UNROLL for (uint i = 0; i < high; i += 2) {
      simdgroup_matrix<T, 8, 8> a[2][4];
      PACKED_UNROLL for (uint r = 0; r < 2; ++r)
          matrix_load_wide(a[r], xs + (i + r) * 8 * kLinearTileStride + k, kLinearTileStride, false, 8, none, 0);
      PACKED_UNROLL for (uint c = 0; c < 4; c += 2) PACKED_UNROLL for (uint j = 0; j < 4; ++j) matrix_multiply_wide(
          sums[i][j], sums[i + 1][j], a[0][c], a[0][c + 1], a[1][c], a[1][c + 1], b[j][c], b[j][c + 1]);
    }
  }
}

// totals = the slices of the tile's columns `of`, added in order. Where the two matrices of a gated product have
// formats with another order each, this is done once for each: `brings` is whether this thread has a row of it,
// `multiplies` whether this simdgroup has outputs of it.
template <typename T>
METAL_FUNC void linear_tile_sum(thread simdgroup_float8x8 (&totals)[8][4], uint format, uint slice_columns,
                                device const uchar* x, constant LinearParams& p, constant LinearColumns& of,
                                LinearTile<T> tile, bool brings, bool multiplies) {
  if (!brings) tile.cols = 0;
  const uint high = linear_tile_eights(), columns = packed_unit_columns(format);
  const uint turns = linear_blocks(format, of.cols) * (linear_block_columns(format) / kLinearTurn);
  const uint buffer_size = (LINEAR_ROWS + LINEAR_TILE_OUTPUTS) * kLinearTileStride;
  simdgroup_float8x8 sums[8][4];
  PACKED_UNROLL for (uint i = 0; i < high; ++i) PACKED_UNROLL for (uint j = 0; j < 4; ++j) sums[i][j] =
      make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  LinearEight<T> runs[8];
  LinearUnit<T> units[4];
  linear_tile_x(runs, format, x, p, of, tile, 0);
  linear_tile_units(units, format, tile, 0);
  uint left = slice_columns / kLinearTurn;
  bool first = true;
  for (uint turn = 0; turn < turns; ++turn) {
    threadgroup T* xs = tile.memory + (LINEAR_BUFFERS == 2 ? turn % 2 : 0) * buffer_size;
    threadgroup T* ws = xs + LINEAR_ROWS * kLinearTileStride;
    PACKED_UNROLL for (uint i = 0; i < linear_tile_runs(); ++i) {
      const uint at = i * linear_tile_threads() + tile.thread_index;
      linear_put(xs + at / 8 * kLinearTileStride + at % 8 * 8, runs[i]);
    }
    if (brings) {
      threadgroup T* to = ws + tile.tile_row * kLinearTileStride;
      if (columns < 32 || turn % 2 == 0)
        linear_tile_put(to, format, units, tile.side, 0);
      else
        linear_tile_put(to, format, units, tile.side, 2);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (turn + 1 < turns) {
      linear_tile_x(runs, format, x, p, of, tile, turn + 1);
      if (columns < 32 || turn % 2 == 1) linear_tile_units(units, format, tile, turn + 1);
    }
    if (multiplies)
      linear_tile_multiply<T>(sums, xs + tile.part_row * kLinearTileStride, ws + tile.part_output * kLinearTileStride);
    left -= 1;
    if (left == 0 || turn + 1 == turns) {
      if (multiplies) {
        PACKED_UNROLL for (uint i = 0; i < high; ++i) PACKED_UNROLL for (uint j = 0; j < 4; ++j) {
          if (first)
            totals[i][j] = sums[i][j];
          else
            matrix_add(totals[i][j], sums[i][j]);
          sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
      }
      first = false;
      left = slice_columns / kLinearTurn;
    }
    if (LINEAR_BUFFERS == 1) threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (LINEAR_BUFFERS == 2) threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Of a product in cuts the sums so far wait in `waiting`, [rows][outputs]: each thread has its own of them.
template <typename T>
METAL_FUNC void linear_tiles(device const uchar* w, device const uchar* w_up, device const uchar* x,
                             device const float* bias, device const float* bias_up, device uchar* out,
                             constant LinearParams& p, constant LinearColumns* cuts, device float2* waiting,
                             threadgroup uchar* memory, uint group, uint thread_index, uint simdgroup) {
  const uint tile_outputs = LINEAR_GATED ? LINEAR_TILE_OUTPUTS / 2 : LINEAR_TILE_OUTPUTS;
  const uint first_output = group / p.row_tiles * tile_outputs;
  LinearTile<T> tile;
  tile.memory = (threadgroup T*)memory;
  tile.first_row = group % p.row_tiles * LINEAR_ROWS;
  tile.thread_index = thread_index;
  tile.tile_row = thread_index / LINEAR_TILE_PARTS;
  tile.side = thread_index % LINEAR_TILE_PARTS;
  tile.part_row = simdgroup / (LINEAR_TILE_OUTPUTS / 32) * (8 * linear_tile_eights());
  tile.part_output = simdgroup % (LINEAR_TILE_OUTPUTS / 32) * 32;
  const bool is_up = LINEAR_GATED && tile.tile_row >= tile_outputs;
  const uint output = first_output + (is_up ? tile.tile_row - tile_outputs : tile.tile_row);
  const uint safe_output = output < p.outputs ? output : 0;

  for (uint cut = 0; cut < linear_cuts(p); ++cut) {
    constant LinearColumns& of = linear_columns(p, cuts, cut);
    tile.cols = output < p.outputs ? of.cols : 0;
    tile.row = is_up ? packed_row(w_up, p.planes_up, safe_output)
                     : packed_row(linear_cut_weights(w, of), of.planes, safe_output);
    simdgroup_float8x8 totals[8][4];
    if (LINEAR_GATED && LINEAR_FORMAT != LINEAR_FORMAT_UP) {
      const bool up_outputs = tile.part_output >= tile_outputs;
      linear_tile_sum<T>(totals, LINEAR_FORMAT, of.slice_columns, x, p, of, tile, !is_up, !up_outputs);
      linear_tile_sum<T>(totals, LINEAR_FORMAT_UP, p.slice_columns_up, x, p, of, tile, is_up, up_outputs);
    } else {
      linear_tile_sum<T>(totals, LINEAR_FORMAT, of.slice_columns, x, p, of, tile, true, true);
    }

    const uint stride = LINEAR_TILE_OUTPUTS + 4;
    threadgroup float* results = (threadgroup float*)memory;
    PACKED_UNROLL for (uint i = 0; i < linear_tile_eights(); ++i) PACKED_UNROLL for (uint j = 0; j < 4; ++j)
        simdgroup_store(totals[i][j], results + (tile.part_row + i * 8) * stride + tile.part_output + j * 8, stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint at = thread_index; at < LINEAR_ROWS * tile_outputs; at += linear_tile_threads()) {
      const uint r = at / tile_outputs, c = at % tile_outputs, row = tile.first_row + r, o = first_output + c;
      if (row >= p.rows || o >= p.outputs) continue;
      float sum = linear_unboost<T>(LINEAR_FORMAT, results[r * stride + c]);
      const float up = LINEAR_GATED ? results[r * stride + tile_outputs + c] : 0.0f;
      if (LINEAR_CUT) {
        device float2* waits = waiting + ulong(row) * p.outputs + o;
        const float2 sums = linear_join(p, cut, cut > 0 ? *waits : float2(0.0f), sum);
        if (cut + 1 < p.cuts) *waits = sums;
        sum = linear_joined(p, sums);
      }
      if (!LINEAR_CUT || cut + 1 == p.cuts)
        linear_finish(p.out, bias, bias_up, out, row, o, sum, linear_unboost<T>(LINEAR_FORMAT_UP, up));
    }
    if (LINEAR_CUT) threadgroup_barrier(mem_flags::mem_threadgroup);  // results are read before the next cut's operands
  }
}
