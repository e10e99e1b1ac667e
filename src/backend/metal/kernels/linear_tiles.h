#pragma once

#include "linear_params.h"

// Many rows: LINEAR_ROWS rows by LINEAR_TILE_OUTPUTS rows of W, a turn of columns at a time through threadgroup memory,
// so that weights are loaded and decoded once for all of the rows. Of a gated product half of the rows of W are those
// of the first matrix, and half the same ones of the second. While one turn is multiplied the next ones are on their
// way: in registers, or as copies that take none.
//
// In threadgroup memory: [buffers] turns, each of them the rows of x and then those of W, [32 columns a time][rows]
// [linear_tile_stride()]. Behind them, or where they were, results: [rows / 8][outputs / 8][8][8].

template <typename T>
struct LinearTile {
  threadgroup T* memory;
  threadgroup float* results;
  uint first_row;       // of `out`
  uint last_row;        // of experts: of `out`, of the tile's expert
  uint x_rows[8];       // of experts: the row of x of each piece that this thread brings
  PackedRow row;        // of W, of which this thread brings a part of a turn
  uint cols;            // of that row: 0 where there is none
  uint tile_row, side;  // which row of the tile, and which part
  uint thread_index;
  uint part_row, part_output;  // what this simdgroup multiplies: LINEAR_ROWS / LINEAR_TILE_PARTS rows by
                               // LINEAR_TILE_WIDTH outputs
};

// Rows of `out` from here on are none of the tile's.
template <typename T>
METAL_FUNC uint linear_tile_end(constant LinearParams& p, thread const LinearTile<T>& tile) {
  return LINEAR_EXPERTS ? tile.last_row + 1 : p.rows;
}

METAL_FUNC uint linear_tile_threads() { return LINEAR_TILE_PARTS * LINEAR_TILE_OUTPUTS / LINEAR_TILE_WIDTH * 32; }
METAL_FUNC uint linear_tile_sides() { return LINEAR_TILE_PARTS * 32 / LINEAR_TILE_WIDTH; }  // threads a row of W
METAL_FUNC uint linear_tile_high() { return LINEAR_ROWS / 8 / LINEAR_TILE_PARTS; }          // matrices a simdgroup ...
METAL_FUNC uint linear_tile_across() { return LINEAR_TILE_WIDTH / 8; }
METAL_FUNC uint linear_tile_runs() { return LINEAR_TILE_TURN / 8; }  // of a row, in a turn
METAL_FUNC uint linear_tile_stride() { return LINEAR_COPIES ? kLinearCopiedStride : kLinearTileStride; }
METAL_FUNC uint linear_tile_size() {  // of a turn
  return LINEAR_TILE_TURN / 32 * (LINEAR_ROWS + LINEAR_TILE_OUTPUTS) * linear_tile_stride();
}
METAL_FUNC uint linear_tile_weights() { return LINEAR_TILE_TURN / 32 * LINEAR_ROWS * linear_tile_stride(); }  // are at
// Where in `rows` rows of an operand run `run` of row `row` is.
METAL_FUNC uint linear_tile_place(uint rows, uint row, uint run) {
  return (run / 4 * rows + row) * linear_tile_stride() + run % 4 * 8;
}

// ---- what threads bring ---------------------------------------------------------------------------------------------
//
// A *piece* is a run of a row, 16 bytes of numbers of 16 bits. Threads take pieces one after the other, all runs of 32
// columns of a row first: what is side by side in memory.

struct LinearPiece {
  uint row, run;
};
// Piece `i` of a thread's, of an operand of `rows` rows. Where all threads together take some rows as a whole, pieces
// lie as far apart for every thread.
METAL_FUNC LinearPiece linear_piece(uint rows, uint i, uint thread_index) {
  const uint threads = linear_tile_threads();
  LinearPiece piece;
  if (rows * 4 % threads == 0) {
    const uint first = i * threads;
    piece.row = first / 4 % rows + thread_index / 4;
    piece.run = first / 4 / rows * 4 + thread_index % 4;
  } else {
    const uint index = i * threads + thread_index;
    piece.row = index / 4 % rows;
    piece.run = index / 4 / rows * 4 + index % 4;
  }
  return piece;
}
METAL_FUNC uint linear_tile_column(uint format, uint turn, uint run) {
  return linear_short_run_column(format, turn * (LINEAR_TILE_TURN / 32) + run / 4, run % 4);
}
METAL_FUNC uint linear_tile_x_pieces() { return LINEAR_ROWS * linear_tile_runs() / linear_tile_threads(); }
METAL_FUNC uint linear_tile_w_pieces() { return linear_tile_runs() / linear_tile_sides(); }

// Copies: the pieces of this thread that came last, or that are the first. They move on right before the next copies:
// right behind them the registers that say where would be waited for.
struct LinearCopied {
  device const uchar* x[8];
  device const uchar* w[8];
};
METAL_FUNC bool linear_copies_weights(uint format) { return LINEAR_COPIES && format <= packed_bf16; }

// Starts the copies of a turn, to `to`. There is always an end of them to wait for.
METAL_FUNC void linear_tile_copy(threadgroup uchar* to, thread LinearCopied& from, uint format,
                                 constant LinearColumns& columns, uint turn, uint turns, uint thread_index) {
  if (turn < turns) {
    const uint last = max(turn, 1u) - 1;
    const uint x_step = (linear_tile_column(format, turn, 0) - linear_tile_column(format, last, 0)) * 2;
    const uint w_step = (turn - last) * (LINEAR_TILE_TURN / 32 * columns.planes.code_block);
    PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) from.x[i] += x_step;
    if (linear_copies_weights(format)) {
      PACKED_UNROLL for (uint i = 0; i < linear_tile_w_pieces(); ++i) from.w[i] += w_step;
    }
    PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) {
      const LinearPiece piece = linear_piece(LINEAR_ROWS, i, thread_index);
      begin_copy((threadgroup uint4*)(to + linear_tile_place(LINEAR_ROWS, piece.row, piece.run) * 2),
                 (device const uint4*)from.x[i]);
    }
    if (linear_copies_weights(format)) {
      PACKED_UNROLL for (uint i = 0; i < linear_tile_w_pieces(); ++i) {
        const LinearPiece piece = linear_piece(LINEAR_TILE_OUTPUTS, i, thread_index);
        const uint place = linear_tile_weights() + linear_tile_place(LINEAR_TILE_OUTPUTS, piece.row, piece.run);
        begin_copy((threadgroup uint4*)(to + place * 2), (device const uint4*)from.w[i]);
      }
    }
  }
  end_copies();
}

template <typename T>
METAL_FUNC void linear_tile_x(thread LinearEight<T>* runs, uint format, device const uchar* x, constant LinearParams& p,
                              constant LinearColumns& columns, thread const LinearTile<T>& tile, uint turn) {
  PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) {
    const LinearPiece piece = linear_piece(LINEAR_ROWS, i, tile.thread_index);
    const uint row = tile.first_row + piece.row;
    runs[i] = linear_zeros<T>();
    if (row < linear_tile_end(p, tile))
      runs[i] = linear_x8<T>(x, linear_first(columns), columns.cols, p.x_stride, LINEAR_EXPERTS ? tile.x_rows[i] : row,
                             linear_tile_column(format, turn, piece.run));
  }
}

// Of a turn, or of as many as a step of blocks has columns for: how many units a thread brings, and for how many turns.
METAL_FUNC uint linear_tile_own_units(uint format) {
  return (packed_unit_columns(format) == 8 ? linear_tile_runs() : 4) / linear_tile_sides();
}
METAL_FUNC uint linear_tile_unit_turns(uint format) { return max(linear_step_columns(format) / LINEAR_TILE_TURN, 1u); }
template <typename T>
METAL_FUNC void linear_tile_units(thread LinearUnit<T>* units, uint format, thread const LinearTile<T>& tile,
                                  uint turn) {
  const uint columns = packed_unit_columns(format), count = linear_tile_own_units(format);
  const uint first = (turn / linear_tile_unit_turns(format) * linear_tile_sides() + tile.side) * count;
  PACKED_UNROLL for (uint i = 0; i < count; ++i) units[i] =
      linear_load_unit<T>(format, tile.row, first + i, (first + i) * columns < tile.cols);
}
// Turn `turn` of those that the units are for.
template <typename T>
METAL_FUNC void linear_tile_put(threadgroup T* to, uint format, thread const LinearUnit<T>* units,
                                thread const LinearTile<T>& tile, uint turn) {
  const uint count = linear_tile_own_units(format);
  if (packed_unit_columns(format) == 8) {
    PACKED_UNROLL for (uint i = 0; i < count; ++i)
        linear_put(to + linear_tile_place(LINEAR_TILE_OUTPUTS, tile.tile_row, tile.side * count + i),
                   linear_decode<T>(format, units[i], 0));
  } else {
    PACKED_UNROLL for (uint c = 0; c < LINEAR_TILE_TURN / 32; ++c) PACKED_UNROLL for (uint i = 0; i < count; ++i)
        linear_put(to + linear_tile_place(LINEAR_TILE_OUTPUTS, tile.tile_row, c * 4 + tile.side * count + i),
                   linear_decode<T>(format, units[i], turn * (LINEAR_TILE_TURN / 32) + c));
  }
}

// What goes through registers: fetched for one turn, put down for another.
template <typename T>
struct LinearBrought {
  LinearEight<T> runs[8];
  LinearUnit<T> units[8];
};
template <typename T>
METAL_FUNC void linear_tile_fetch(thread LinearBrought<T>& brought, uint format, device const uchar* x,
                                  constant LinearParams& p, constant LinearColumns& of,
                                  thread const LinearTile<T>& tile, uint turn, uint turns) {
  if (turn >= turns) return;
  if (!LINEAR_COPIES) linear_tile_x(brought.runs, format, x, p, of, tile, turn);
  if (!linear_copies_weights(format) && turn % linear_tile_unit_turns(format) == 0)
    linear_tile_units(brought.units, format, tile, turn);
}
template <typename T>
METAL_FUNC void linear_tile_land(threadgroup T* to, thread const LinearBrought<T>& brought, uint format,
                                 thread const LinearTile<T>& tile, bool brings, uint turn, uint turns) {
  if (turn >= turns) return;
  if (!LINEAR_COPIES) {
    PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) {
      const LinearPiece piece = linear_piece(LINEAR_ROWS, i, tile.thread_index);
      linear_put(to + linear_tile_place(LINEAR_ROWS, piece.row, piece.run), brought.runs[i]);
    }
  }
  if (linear_copies_weights(format) || !brings) return;
  PACKED_UNROLL for (uint t = 0; t < linear_tile_unit_turns(format); ++t) {
    if (turn % linear_tile_unit_turns(format) == t)
      linear_tile_put(to + linear_tile_weights(), format, brought.units, tile, t);
  }
}

// ---- what simdgroups multiply ---------------------------------------------------------------------------------------

// Where two rows of matrices meet in an instruction, loads of one part of a turn go beside the products of the part
// before it: rows of x two by two, and all of W while the last two are multiplied.
template <typename T>
METAL_FUNC constexpr bool linear_tile_is_wide() {
  return sizeof(T) == 2 && kWideMatrices;
}
template <typename T>
struct LinearLoaded {
  simdgroup_matrix<T, 8, 8> a[2][4], b[8][4];
};
template <typename T>
METAL_FUNC threadgroup const T* linear_tile_rows(threadgroup const T* turn, thread const LinearTile<T>& tile, uint i,
                                                 uint run) {
  return turn + linear_tile_place(LINEAR_ROWS, tile.part_row + i * 8, run);
}
template <typename T>
METAL_FUNC threadgroup const T* linear_tile_outputs(threadgroup const T* turn, thread const LinearTile<T>& tile, uint j,
                                                    uint run) {
  return turn + linear_tile_weights() + linear_tile_place(LINEAR_TILE_OUTPUTS, tile.part_output + j * 8, run);
}
template <typename T>
METAL_FUNC void linear_tile_load_output(thread LinearLoaded<T>& loaded, threadgroup const T* turn,
                                        thread const LinearTile<T>& tile, uint j, uint run) {
  threadgroup T* none = nullptr;
  matrix_load_wide(loaded.b[j], linear_tile_outputs(turn, tile, j, run), linear_tile_stride(), true, 8, none, 0);
}
template <typename T>
METAL_FUNC void linear_tile_load_first(thread LinearLoaded<T>& loaded, threadgroup const T* turn,
                                       thread const LinearTile<T>& tile) {
  matrix_load_left(loaded.a[0], loaded.a[1], linear_tile_rows(turn, tile, 0, 0), linear_tile_stride());
  PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j) linear_tile_load_output(loaded, turn, tile, j, 0);
}
// Eight rows and eight outputs at a time.
template <typename T>
METAL_FUNC void linear_tile_multiply(thread simdgroup_float8x8 (&sums)[8][8], threadgroup const T* turn,
                                     thread const LinearTile<T>& tile) {
  const uint stride = linear_tile_stride();
  for (uint run = 0; run < linear_tile_runs(); ++run) {
    simdgroup_matrix<T, 8, 8> b[8];
    PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j)
        simdgroup_load(b[j], linear_tile_outputs(turn, tile, j, run), stride, ulong2(0, 0), true);
    PACKED_UNROLL for (uint i = 0; i < linear_tile_high(); ++i) {
      simdgroup_matrix<T, 8, 8> a;
      simdgroup_load(a, linear_tile_rows(turn, tile, i, run), stride);
      PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j)
          simdgroup_multiply_accumulate(sums[i][j], a, b[j], sums[i][j]);
    }
  }
}

template <typename T>
METAL_FUNC threadgroup float* linear_tile_result(thread const LinearTile<T>& tile, uint i, uint j) {
  return tile.results + ((tile.part_row / 8 + i) * (LINEAR_TILE_OUTPUTS / 8) + tile.part_output / 8 + j) * 64;
}
// totals = or += sums, which begin anew.
template <typename T>
METAL_FUNC void linear_tile_add(thread simdgroup_float8x8 (&totals)[8][8], thread simdgroup_float8x8 (&sums)[8][8],
                                thread const LinearTile<T>& tile, bool first) {
  PACKED_UNROLL for (uint i = 0; i < linear_tile_high(); ++i) {
    PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j) {
      if (LINEAR_TOTALS) {
        threadgroup float* at = linear_tile_result(tile, i, j);
        if (!first) {
          simdgroup_float8x8 total;
          simdgroup_load(total, at);
          matrix_add(total, sums[i][j]);
          simdgroup_store(total, at);
        } else {
          simdgroup_store(sums[i][j], at);
        }
      } else if (first) {
        totals[i][j] = sums[i][j];
      } else {
        matrix_add(totals[i][j], sums[i][j]);
      }
      sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
}

// Behind this a turn is in threadgroup memory, and nobody reads the one before any more.
template <typename T>
METAL_FUNC void linear_tile_meet(thread const LinearBrought<T>& brought, uint format, thread const LinearTile<T>& tile,
                                 bool brings, uint turn, uint turns) {
  if (LINEAR_BUFFERS == 1) {
    // Of the first turn too: a loop that begins otherwise than it goes on is compiled twice, with more registers.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    linear_tile_land(tile.memory, brought, format, tile, brings, turn, turns);
  }
  if (LINEAR_COPIES) wait_for_copies(LINEAR_BUFFERS - 2);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
// Fills what is free while `turn` is multiplied, in buffer `at`.
template <typename T>
METAL_FUNC void linear_tile_refill(thread LinearBrought<T>& brought, uint format, device const uchar* x,
                                   thread LinearCopied& copied, constant LinearParams& p, constant LinearColumns& of,
                                   thread const LinearTile<T>& tile, bool brings, uint turn, uint turns, uint at) {
  const uint last = at > 0 ? at - 1 : LINEAR_BUFFERS - 1, next = at + 1 < LINEAR_BUFFERS ? at + 1 : 0;
  if (LINEAR_COPIES)
    linear_tile_copy((threadgroup uchar*)(tile.memory + last * linear_tile_size()), copied, format, of,
                     turn + LINEAR_BUFFERS - 1, turns, tile.thread_index);
  if (LINEAR_BUFFERS > 1)
    linear_tile_land(tile.memory + next * linear_tile_size(), brought, format, tile, brings, turn + 1, turns);
  linear_tile_fetch(brought, format, x, p, of, tile, turn + (LINEAR_BUFFERS > 1 ? 2 : 1), turns);
}

// totals = the slices of the tile's columns `of`, added in order. Where the two matrices of a gated product have
// formats with another order each, this is done once for each: `brings` is whether this thread has a row of it,
// `multiplies` whether this simdgroup has outputs of it.
template <typename T>
METAL_FUNC void linear_tile_sum(thread simdgroup_float8x8 (&totals)[8][8], uint format, uint slice_columns,
                                device const uchar* x, thread LinearCopied& copied, constant LinearParams& p,
                                constant LinearColumns& of, LinearTile<T> tile, bool brings, bool multiplies) {
  if (!brings) tile.cols = 0;
  const uint turns = linear_blocks(format, of.cols) * (linear_block_columns(format) / LINEAR_TILE_TURN);
  const uint each = slice_columns / LINEAR_TILE_TURN;
  simdgroup_float8x8 sums[8][8];
  PACKED_UNROLL for (uint i = 0; i < linear_tile_high(); ++i)
      PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j) sums[i][j] =
          make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  LinearBrought<T> brought;
  if (LINEAR_COPIES) {
    PACKED_UNROLL for (uint turn = 0; turn + 1 < LINEAR_BUFFERS; ++turn)
        linear_tile_copy((threadgroup uchar*)(tile.memory + turn * linear_tile_size()), copied, format, of, turn, turns,
                         tile.thread_index);
  }
  linear_tile_fetch(brought, format, x, p, of, tile, 0, turns);
  if (LINEAR_BUFFERS > 1) {
    linear_tile_land(tile.memory, brought, format, tile, brings, 0, turns);
    linear_tile_fetch(brought, format, x, p, of, tile, 1, turns);
  }
  LinearLoaded<T> loaded;
  if (linear_tile_is_wide<T>()) {
    linear_tile_meet(brought, format, tile, brings, 0, turns);
    linear_tile_refill(brought, format, x, copied, p, of, tile, brings, 0, turns, 0);
    linear_tile_load_first(loaded, tile.memory, tile);
  }
  uint left = each, at = 0;  // which buffer is multiplied
  bool first = true;
  for (uint turn = 0; turn < turns; ++turn) {
    const uint next = at + 1 < LINEAR_BUFFERS ? at + 1 : 0;
    threadgroup const T* here = tile.memory + at * linear_tile_size();
    if (linear_tile_is_wide<T>()) {
      // All of a turn is in registers before the next one is waited for: of the last one whatever is there is loaded.
      PACKED_UNROLL for (uint run = 0; run < linear_tile_runs(); run += 4) {
        PACKED_UNROLL for (uint i = 0; i < linear_tile_high(); i += 2) {
          const bool last_i = i + 2 >= linear_tile_high(), last = last_i && run + 4 >= linear_tile_runs();
          if (last) linear_tile_meet(brought, format, tile, brings, turn + 1, turns);
          threadgroup const T* from = last ? tile.memory + next * linear_tile_size() : here;
          const uint next_run = !last_i ? run : last ? 0 : run + 4;
          simdgroup_matrix<T, 8, 8> a[2][4];
          matrix_load_left(a[0], a[1], linear_tile_rows(from, tile, last_i ? 0 : i + 2, next_run),
                           linear_tile_stride());
          simdgroup_barrier(mem_flags::mem_none);  // loads are not put off until they are needed
          if (last) linear_tile_refill(brought, format, x, copied, p, of, tile, brings, turn + 1, turns, next);
          PACKED_UNROLL for (uint c = 0; c < 4; c += 2) {
            PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j) {
              matrix_multiply_wide(sums[i][j], sums[i + 1][j], loaded.a[0][c], loaded.a[0][c + 1], loaded.a[1][c],
                                   loaded.a[1][c + 1], loaded.b[j][c], loaded.b[j][c + 1]);
              if (last_i && c == 2) linear_tile_load_output(loaded, from, tile, j, next_run);
            }
          }
          PACKED_UNROLL for (uint r = 0; r < 2; ++r) PACKED_UNROLL for (uint k = 0; k < 4; ++k) loaded.a[r][k] =
              a[r][k];
        }
      }
    } else {
      linear_tile_meet(brought, format, tile, brings, turn, turns);
      linear_tile_refill(brought, format, x, copied, p, of, tile, brings, turn, turns, at);
      if (multiplies) linear_tile_multiply<T>(sums, here, tile);
    }
    at = next;
    left -= 1;
    if (left == 0 || turn + 1 == turns) {
      if (multiplies) linear_tile_add(totals, sums, tile, first);
      first = false;
      left = each;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Two neighbouring outputs of a tile, and where their sums are.
struct LinearPair {
  uint row, output, place;
};
METAL_FUNC LinearPair linear_tile_pair(uint index, uint across) {
  const uint eight = index / 32;
  LinearPair pair;
  pair.row = eight / across * 8 + index % 32 / 4;
  pair.output = eight % across * 8 + index % 4 * 2;
  pair.place = (eight / across * (LINEAR_TILE_OUTPUTS / 8) + eight % across) * 64 + index % 32 * 2;
  return pair;
}

// Of a product in cuts the sums so far wait in `waiting`, [rows][outputs]: each thread has its own of them.
template <typename T>
METAL_FUNC void linear_tiles(device const uchar* w, device const uchar* w_up, device const uchar* x,
                             device const float* bias, device const float* bias_up, device uchar* out,
                             constant LinearParams& p, constant LinearColumns* cuts, device const int* items,
                             device const int* starts, device const int* order, device float2* waiting,
                             threadgroup uchar* memory, uint group, uint thread_index, uint simdgroup) {
  const uint row_tile = group % p.row_tiles, item_tiles = LINEAR_EXPERTS ? p.item_tiles : 1;
  LinearItem item = linear_item(p, items, starts, row_tile / item_tiles);
  if (LINEAR_EXPERTS) {
    item.first_row += row_tile % item_tiles * LINEAR_ROWS;
    if (!item.exists || item.first_row > item.last_row) return;
  }
  const uint tile_outputs = LINEAR_GATED ? LINEAR_TILE_OUTPUTS / 2 : LINEAR_TILE_OUTPUTS;
  const uint first_output = group / p.row_tiles * tile_outputs;
  LinearTile<T> tile;
  tile.memory = (threadgroup T*)memory;
  tile.results = (threadgroup float*)(memory + (LINEAR_TOTALS ? LINEAR_BUFFERS * linear_tile_size() * sizeof(T) : 0));
  tile.first_row = item.first_row;
  tile.last_row = item.last_row;
  tile.thread_index = thread_index;
  tile.tile_row = thread_index / linear_tile_sides();
  tile.side = thread_index % linear_tile_sides();
  tile.part_row = simdgroup / (LINEAR_TILE_OUTPUTS / LINEAR_TILE_WIDTH) * (8 * linear_tile_high());
  tile.part_output = simdgroup % (LINEAR_TILE_OUTPUTS / LINEAR_TILE_WIDTH) * LINEAR_TILE_WIDTH;
  const bool is_up = LINEAR_GATED && tile.tile_row >= tile_outputs;
  const uint output = first_output + tile.tile_row % tile_outputs;
  const uint weight = item.first_weight + (output < p.outputs ? output : 0);  // row of W
  if (LINEAR_EXPERTS && !LINEAR_COPIES) {
    PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) {
      const uint row = tile.first_row + linear_piece(LINEAR_ROWS, i, thread_index).row;
      tile.x_rows[i] = linear_x_row(p, order, row, item.last_row);
    }
  }
  LinearCopied copied;
  if (LINEAR_COPIES) {  // of rows that are not there the last one, or the first: their results go nowhere
    PACKED_UNROLL for (uint i = 0; i < linear_tile_x_pieces(); ++i) {
      const LinearPiece piece = linear_piece(LINEAR_ROWS, i, thread_index);
      const ulong row = linear_x_row(p, order, tile.first_row + piece.row, item.last_row);
      copied.x[i] = x + (row * p.x_stride + linear_tile_column(LINEAR_FORMAT, 0, piece.run)) * 2;
    }
    PACKED_UNROLL for (uint i = 0; i < linear_tile_w_pieces(); ++i) {
      const LinearPiece piece = linear_piece(LINEAR_TILE_OUTPUTS, i, thread_index);
      const uint o = first_output + piece.row % tile_outputs;
      const PackedRow row = packed_row(piece.row < tile_outputs ? w : w_up, p.columns.planes,
                                       item.first_weight + (o < p.outputs ? o : 0));
      copied.w[i] = row.codes + piece.run / 4 * p.columns.planes.code_block + piece.run % 4 * 16;
    }
  }

  for (uint cut = 0; cut < linear_cuts(p); ++cut) {
    constant LinearColumns& of = linear_columns(p, cuts, cut);
    tile.cols = output < p.outputs ? of.cols : 0;
    tile.row = is_up ? packed_row(w_up, p.planes_up, weight) : packed_row(linear_cut_weights(w, of), of.planes, weight);
    simdgroup_float8x8 totals[8][8];
    if (LINEAR_GATED && LINEAR_FORMAT != LINEAR_FORMAT_UP) {
      const bool up_outputs = tile.part_output >= tile_outputs;
      linear_tile_sum<T>(totals, LINEAR_FORMAT, of.slice_columns, x, copied, p, of, tile, !is_up, !up_outputs);
      linear_tile_sum<T>(totals, LINEAR_FORMAT_UP, p.slice_columns_up, x, copied, p, of, tile, is_up, up_outputs);
    } else {
      linear_tile_sum<T>(totals, LINEAR_FORMAT, of.slice_columns, x, copied, p, of, tile, true, true);
    }

    if (!LINEAR_TOTALS) {
      PACKED_UNROLL for (uint i = 0; i < linear_tile_high(); ++i)
          PACKED_UNROLL for (uint j = 0; j < linear_tile_across(); ++j)
              simdgroup_store(totals[i][j], linear_tile_result(tile, i, j));
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    // Two neighbouring outputs a thread, an eight of rows by an eight of outputs a simdgroup; several at once where
    // there are registers: those that are not there, too, so that nothing is decided in between.
    constexpr uint together = kWideMatrices ? 4 : 1;
    const uint pairs = LINEAR_ROWS * tile_outputs / 2, across = tile_outputs / 8;
    for (uint first = thread_index; first < pairs; first += together * linear_tile_threads()) {
      float2 values[together];
      PACKED_UNROLL for (uint t = 0; t < together; ++t) {
        const LinearPair at = linear_tile_pair(min(first + t * linear_tile_threads(), pairs - 1), across);
        const uint row = tile.first_row + at.row, o = first_output + at.output;
        threadgroup const float* from = tile.results + at.place;
        const float2 results = *(threadgroup const float2*)from;
        const float2 ups = LINEAR_GATED ? *(threadgroup const float2*)(from + tile_outputs * 8) : float2(0.0f);
        PACKED_UNROLL for (uint i = 0; i < 2; ++i) {
          float sum = linear_unboost<T>(LINEAR_FORMAT, results[i]);
          if (LINEAR_CUT && row < linear_tile_end(p, tile) && o + i < p.outputs) {
            device float2* waits = waiting + ulong(row) * p.outputs + o + i;
            const float2 sums = linear_join(p, cut, cut > 0 ? *waits : float2(0.0f), sum);
            if (cut + 1 < p.cuts) *waits = sums;
            sum = linear_joined(p, sums);
          }
          values[t][i] = linear_value(p.out, bias, bias_up, min(o + i, p.outputs - 1), sum,
                                      linear_unboost<T>(LINEAR_FORMAT_UP, ups[i]));
        }
      }
      if (LINEAR_CUT && cut + 1 < p.cuts) continue;
      PACKED_UNROLL for (uint t = 0; t < together; ++t) {
        const LinearPair at = linear_tile_pair(first + t * linear_tile_threads(), across);
        const uint row = tile.first_row + at.row, o = first_output + at.output;
        if (at.row < LINEAR_ROWS && row < linear_tile_end(p, tile) && o < p.outputs)
          linear_store_two(p.out, out, row, o, min(p.outputs - o, 2u), values[t].x, values[t].y);
      }
    }
    if (LINEAR_CUT) threadgroup_barrier(mem_flags::mem_threadgroup);  // results are read before the next cut's operands
  }
}
