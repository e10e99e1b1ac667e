#pragma once

#include "linear_slices.h"

// Blocks and few rows, x shared: with blocks of 4 bits x is as many bytes as the weights that a simdgroup multiplies it
// by, so simdgroups that each read it from device memory are held up by x rather than by W. Here LINEAR_SHARED
// simdgroups have 8 * LINEAR_MATRIX outputs each (gated: of each matrix) and take the same columns of x from
// threadgroup memory, where they lie as lanes take them: a *turn* of LINEAR_UNROLL steps, while the next one is copied
// beside the threads. Larger turns were slower on an H200. Weights go from device memory to registers, a turn ahead.
//
// A threadgroup takes all columns, slice after slice, and the slices so far wait in threadgroup memory; or, with
// LINEAR_SPLIT, one slice, and leaves its sums in partials, [slice][row][output], for linear_add. Turns are whole
// blocks of 256 columns, and so are slices; of a split product each slice is whole turns.

METAL_FUNC uint linear_turn_bytes() { return LINEAR_UNROLL * linear_step_columns(LINEAR_FORMAT) * LINEAR_ROWS * 2; }

// A turn of x from column `col` on: [step][chunk][LINEAR_ROWS / 8][8 rows][4 units] of 8 columns. Neighbouring threads
// take what lies side by side in x. Rows past the last are zeros; `fresh`: nobody has put them there.
METAL_FUNC void linear_begin_turn(threadgroup uint4* to, device const uchar* x, constant LinearParams& p,
                                  uint first_row, uint col, bool fresh, uint thread_index) {
  const uint columns = packed_unit_columns(LINEAR_FORMAT), chunks = columns / 8;
  for (uint at = thread_index; at < linear_turn_bytes() / 16; at += LINEAR_SHARED * 32) {
    const uint chunk = at % chunks, unit = at / chunks % 4, row = at / (4 * chunks) % LINEAR_ROWS;
    const uint step = at / (4 * chunks) / LINEAR_ROWS, from = col + step * (4 * columns) + at % (4 * chunks) * 8;
    threadgroup uint4* place = to + ((step * chunks + chunk) * (LINEAR_ROWS / 8) + row / 8) * 32 +
                               matrix_turned(row % 8 * 4 + unit, chunk * (8 / chunks));
    if (first_row + row < p.rows)
      begin_copy(place, (device const uint4*)(x + (ulong(first_row + row) * p.x_stride + from) * 2));
    else if (fresh)
      *place = uint4(0);
  }
  end_copies();
}

// The lane's row of each panel: where its codes are, and how far from there its high bits and scales.
struct LinearStreams {
  device const uchar* codes[8];
  int high, meta;
  uint4 numbers;
};
METAL_FUNC PackedRow linear_stream(thread const LinearStreams& streams, uint i) {
  PackedRow row;
  row.codes = streams.codes[i];
  row.high = row.codes + streams.high;
  row.meta = row.codes + streams.meta;
  row.code_block = 8 * 4 * packed_unit_bytes(LINEAR_FORMAT);
  row.high_block = 8 * 4 * 4 * packed_high_bits(LINEAR_FORMAT);
  row.meta_block = 8 * packed_meta_bytes(LINEAR_FORMAT);
  row.numbers = streams.numbers;
  return row;
}
// Steps [step, step + LINEAR_UNROLL) from where the streams are: step u of them, and the scales of the block it ends.
METAL_FUNC void linear_load_streams(thread LinearUnits& units, thread const LinearStreams& streams, uint eights,
                                    uint step, uint u, uint lane) {
  const uint whole = 256 / linear_step_columns(LINEAR_FORMAT);
  PackedRow rows[8];
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) rows[i] = linear_stream(streams, i);
  linear_load_step(units, rows, eights, step, u, lane);
  if (u % whole + 1 == whole) linear_load_metas(units, rows, eights, step, u + 1 - whole);
}
// `steps` on: whole blocks.
METAL_FUNC void linear_move(thread LinearStreams& streams, uint eights, uint steps) {
  const uint code_bytes = steps * (8 * 4 * packed_unit_bytes(LINEAR_FORMAT));
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) streams.codes[i] += code_bytes;
  streams.high += int(steps * (8 * 4 * 4 * packed_high_bits(LINEAR_FORMAT)) - code_bytes);
  streams.meta +=
      int(steps / (256 / linear_step_columns(LINEAR_FORMAT)) * (8 * packed_meta_bytes(LINEAR_FORMAT)) - code_bytes);
}

// sums += the steps of a block of 256 columns, from step `first` of the turn on, and the units of the next turn in
// their place.
METAL_FUNC void linear_multiply_block(thread simdgroup_float8x8 (&sums)[8][8], thread LinearUnits& units,
                                      threadgroup const uint4* turn, thread const LinearStreams& streams, uint eights,
                                      uint first, bool more, thread uint& picker, threadgroup half* part, uint lane) {
  const uint tiles = LINEAR_ROWS / 8, chunks = packed_unit_columns(LINEAR_FORMAT) / 8;
  const uint whole = 256 / linear_step_columns(LINEAR_FORMAT);
  PACKED_UNROLL for (uint u = first; u < first + whole; ++u) {
    PackedHalfScales scales[8];
    PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
      if (packed_has_wide_meta(LINEAR_FORMAT))
        scales[i] = packed_pick(LINEAR_FORMAT, units.meta[first][i], u - first, picker);
      else
        scales[i] = packed_half_scales(LINEAR_FORMAT, packed_scales(LINEAR_FORMAT, units.at[u][i]));
    }
    PACKED_UNROLL for (uint chunk = 0; chunk < chunks; ++chunk) {
      simdgroup_half8x8 a[8][4], b[8][4];
      PACKED_UNROLL for (uint g = 0; g < tiles; ++g)
          matrix_load_turned(b[g], turn + ((u * chunks + chunk) * tiles + g) * 32, chunk * (8 / chunks), true, lane);
      PACKED_UNROLL for (uint i = 0; i < eights; ++i)
          matrix_set_wide(a[i], packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 0),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 1),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 2),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 3), false, part, lane);
      linear_multiply(sums, a, b, eights, 0, tiles);
    }
    if (more) linear_load_streams(units, streams, eights, LINEAR_UNROLL, u, lane);
    // Those loads are issued before the next unit is decoded.
    if (packed_has_wide_meta(LINEAR_FORMAT))
      picker = known_from_here(picker, (threadgroup uint*)part + lane);
    else
      simdgroup_barrier(mem_flags::mem_none);
  }
}

METAL_FUNC void linear_shared_blocks(device const uchar* w, device const uchar* w_up, device const uchar* x,
                                     device const float* bias, device const float* bias_up, device uchar* out,
                                     constant LinearParams& p, device float* partials, threadgroup uchar* memory,
                                     uint group, uint thread_index, uint simdgroup, uint lane) {
  const uint eights = LINEAR_GATED ? 2 * LINEAR_MATRIX : LINEAR_MATRIX;
  const uint tiles = LINEAR_ROWS / 8, outputs = 8 * LINEAR_MATRIX;
  const uint step_columns = linear_step_columns(LINEAR_FORMAT), whole = 256 / step_columns;
  const uint first_output = (group % p.output_groups * LINEAR_SHARED + simdgroup) * outputs;
  const uint row_group = group / p.output_groups / (LINEAR_SPLIT ? LINEAR_SLICES : 1);
  const uint slice = LINEAR_SPLIT ? group / p.output_groups % LINEAR_SLICES : 0;
  const uint first_row = row_group * LINEAR_ROWS;
  const uint steps = p.columns.cols / step_columns, slice_steps = p.columns.slice_columns / step_columns;
  const uint first = slice * slice_steps, last = LINEAR_SPLIT ? min(first + slice_steps, steps) : steps;
  threadgroup uchar* behind = memory + 2 * linear_turn_bytes();
  threadgroup half* corner = (threadgroup half*)behind + simdgroup * 256;
  threadgroup float* totals = (threadgroup float*)(behind + LINEAR_SHARED * 512) + simdgroup * tiles * eights * 64;

  const LinearPanels<half> panels = linear_panels<half>(w, w_up, p, p.columns.planes, 0, first_output, eights, lane);
  LinearStreams streams;
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) streams.codes[i] = panels.row[i].codes;
  streams.high = int(panels.row[0].high - panels.row[0].codes);
  streams.meta = int(panels.row[0].meta - panels.row[0].codes);
  streams.numbers = panels.row[0].numbers;
  linear_move(streams, eights, first);
  LinearUnits units;
  PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) linear_load_streams(units, streams, eights, 0, u, lane);
  wait_for_dispatches();
  linear_begin_turn((threadgroup uint4*)memory, x, p, first_row, first * step_columns, true, thread_index);
  uint picker = packed_picker(LINEAR_FORMAT, lane % 4);
  if (kWideMatrices) ((threadgroup uint*)corner)[lane] = picker;  // known_from_here
  simdgroup_float8x8 sums[8][8];
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) PACKED_UNROLL for (uint g = 0; g < tiles; ++g) sums[i][g] =
      make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  uint side = 0, slice_end = first + slice_steps;
  for (uint step = first; step < last; step += LINEAR_UNROLL) {
    const bool more = step + LINEAR_UNROLL < last;
    wait_for_copies();
    threadgroup_barrier(mem_flags::mem_threadgroup);  // this turn is there, and nobody needs the one before
    if (more)
      linear_begin_turn((threadgroup uint4*)(memory + (side ^ linear_turn_bytes())), x, p, first_row,
                        (step + LINEAR_UNROLL) * step_columns, step == first, thread_index);
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; u += whole) {
      linear_multiply_block(sums, units, (threadgroup const uint4*)(memory + side), streams, eights, u, more, picker,
                            corner, lane);
      if (!LINEAR_SPLIT && (step + u + whole == slice_end || step + u + whole == last)) {
        PACKED_UNROLL for (uint i = 0; i < eights; ++i) PACKED_UNROLL for (uint g = 0; g < tiles; ++g) {
          threadgroup float* total = totals + (g * eights + i) * 64;
          if (slice_end != slice_steps) {
            simdgroup_float8x8 before;
            simdgroup_load(before, total, 8);
            matrix_add(before, sums[i][g]);
            simdgroup_store(before, total, 8);
          } else {
            simdgroup_store(sums[i][g], total, 8);
          }
          sums[i][g] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        slice_end += slice_steps;
      }
    }
    linear_move(streams, eights, LINEAR_UNROLL);
    side ^= linear_turn_bytes();
  }

  if (LINEAR_SPLIT) {
    const ulong padded = (p.outputs + 7) / 8 * 8;
    device float* to = partials + ulong(row_group * LINEAR_SLICES + slice) * LINEAR_ROWS * padded + first_output;
    PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
      if (first_output + i * 8 < p.outputs) {
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g)
            simdgroup_store(sums[i][g], to + g * 8 * padded + i * 8, padded, ulong2(0, 0), true);
      }
    }
    return;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  // Lanes take pairs of rows of an output that lie side by side.
  MATRIX_ROLLED for (uint at = 0; at < tiles * LINEAR_MATRIX; ++at) {
    const uint g = at / LINEAR_MATRIX, i = at % LINEAR_MATRIX;
    threadgroup const float* from = totals + (g * eights + i) * 64 + lane * 2;
    const uint output = first_output + i * 8 + lane / 4, row = first_row + g * 8 + lane % 4 * 2;
    PACKED_UNROLL for (uint odd = 0; odd < 2; ++odd) {
      if (row + odd < p.rows && output < p.outputs)
        linear_finish(p.out, bias, bias_up, out, row + odd, output, linear_unboost<half>(LINEAR_FORMAT, from[odd]),
                      LINEAR_GATED ? linear_unboost<half>(LINEAR_FORMAT_UP, from[LINEAR_MATRIX * 64 + odd]) : 0.0f);
    }
  }
}
