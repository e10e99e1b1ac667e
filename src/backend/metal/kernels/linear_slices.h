#pragma once

#include "linear_params.h"

// Few rows, on the matrix unit, weights streamed: a simdgroup takes a slice of the columns of some outputs.

constant bool LINEAR_BLOCKS = LINEAR_FORMAT > packed_bf16;
constant constexpr uint kLinearLoadedAhead = 8;  // see linear_matrix
// Floats from one row of results to the next: neither do lanes that store a matrix turned meet in a bank of threadgroup
// memory, nor those that take outputs side by side.
METAL_FUNC uint linear_result_stride(uint eights) { return eights * 8 + kLinearResultGap; }

// Adds up the slices of 8 * LINEAR_MATRIX outputs by 8 * round rows and stores the results. Those of a cut wait in
// `waiting`, [8 * round][8 * LINEAR_MATRIX], for the next one: each thread has its own of them.
template <typename T>
struct LinearAdder {
  uint cut, first_output, first_row, last_row, slices, eights, round;

  METAL_FUNC uint outputs() const thread { return 8 * LINEAR_MATRIX; }
  METAL_FUNC bool has(constant LinearParams& p, uint at) const thread {
    return at < outputs() * 8 * round && first_row + at / outputs() <= last_row &&
           first_output + at % outputs() < p.outputs;
  }
  // What result `at` is added to, which need not wait for the sums.
  METAL_FUNC float before(constant LinearParams& p, device const uchar* out, uint at) const thread {
    return has(p, at) ? linear_before(p.out, out, first_row + at / outputs(), first_output + at % outputs()) : 0.0f;
  }
  METAL_FUNC void add(constant LinearParams& p, device const float* bias, device const float* bias_up,
                      device uchar* out, threadgroup const float* results, threadgroup float2* waiting, uint at,
                      float before) const thread {
    const uint o = at % outputs(), r = at / outputs(), stride = 8 * round * linear_result_stride(eights);
    threadgroup const float* from = results + r * linear_result_stride(eights) + o;
    float sum = from[0], up = LINEAR_GATED ? from[outputs()] : 0.0f;
    PACKED_UNROLL for (uint slice = 1; slice < kLinearMostSlices; ++slice) {
      if (slice < slices) {
        sum += from[slice * stride];
        if (LINEAR_GATED) up += from[slice * stride + outputs()];
      }
    }
    sum = linear_unboost<T>(LINEAR_FORMAT, sum);
    if (LINEAR_CUT) {
      const float2 sums = linear_join(p, cut, cut > 0 ? waiting[at] : float2(0.0f), sum);
      waiting[at] = sums;
      sum = linear_joined(p, sums);
    }
    if (!LINEAR_CUT || cut + 1 == p.cuts)
      linear_finish(p.out, before, bias, bias_up, out, first_row + r, first_output + o, sum,
                    linear_unboost<T>(LINEAR_FORMAT_UP, up));
  }
};

// ---- what is multiplied ---------------------------------------------------------------------------------------------

// Panels of W that a simdgroup takes, and eights of rows of x.
template <typename T>
struct LinearPanels {
  device const T* at[8];  // 16-bit weights
  PackedRow row[8];       // blocks: the lane's row
};
template <typename T>
struct LinearInputs {
  device const T* at[8];  // the first row of eight; by lanes: the lane's row and run
  uint count[8];          // rows
};
// Lanes look up their rows where these are scattered, and for blocks where it costs nothing. Rows past the last repeat
// it, which takes fewer instructions than not to load them; what comes of them is not stored.
constant bool LINEAR_BY_LANES = LINEAR_EXPERTS || (LINEAR_BLOCKS && kWideMatrices);

// Panels past the last repeat it and are not stored.
template <typename T>
METAL_FUNC LinearPanels<T> linear_panels(device const uchar* w, device const uchar* w_up, constant LinearParams& p,
                                         constant PackedPlanes& planes, uint first_weight, uint first_output,
                                         uint eights, uint lane) {
  LinearPanels<T> panels;
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
    const bool is_up = LINEAR_GATED && i >= LINEAR_MATRIX;
    const uint panel = first_weight / 8 + min(first_output / 8 + (is_up ? i - LINEAR_MATRIX : i), (p.outputs - 1) / 8);
    if (LINEAR_BLOCKS) {
      panels.row[i] = packed_row(is_up ? w_up : w, planes, panel * 8 + lane / 4);
      panels.row[i].code_block = 8 * 4 * packed_unit_bytes(LINEAR_FORMAT);  // constants, for columns such as these
      panels.row[i].high_block = 8 * 4 * 4 * packed_high_bits(LINEAR_FORMAT);
      panels.row[i].meta_block = 8 * packed_meta_bytes(LINEAR_FORMAT);
      if (packed_has_wide_meta(LINEAR_FORMAT)) {  // the lane's unit
        panels.row[i].codes += lane % 4 * packed_unit_bytes(LINEAR_FORMAT);
        panels.row[i].high += lane % 4 * 4 * packed_high_bits(LINEAR_FORMAT);
      }
    } else
      panels.at[i] = (device const T*)((is_up ? w_up : w) + ulong(panel) * planes.panel_bytes);
  }
  return panels;
}

template <typename T>
METAL_FUNC LinearInputs<T> linear_inputs(device const T* x, constant LinearParams& p, device const int* order,
                                         LinearItem item, uint lane) {
  LinearInputs<T> inputs;
  PACKED_UNROLL for (uint g = 0; g < LINEAR_ROWS / 8; ++g) {
    const uint row = item.first_row + g * 8;
    if (LINEAR_BY_LANES) {
      inputs.at[g] = x + ulong(linear_x_row(p, order, row + lane / 4, item.last_row)) * p.x_stride +
                     lane % 4 * packed_unit_columns(LINEAR_FORMAT);
      inputs.count[g] = 8;
    } else {
      inputs.at[g] = x + ulong(min(row, item.last_row)) * p.x_stride;
      inputs.count[g] = row <= item.last_row ? min(item.last_row + 1 - row, 8u) : 0;
    }
  }
  return inputs;
}

// Four runs of 8 columns, from column `col` on, of the eight rows g.
template <typename T>
METAL_FUNC void linear_load_input(thread simdgroup_matrix<T, 8, 8>* b, thread const LinearInputs<T>& inputs, uint g,
                                  uint col, constant LinearParams& p, threadgroup T* part, uint lane) {
  if (LINEAR_BY_LANES)
    matrix_load_lanes(b, inputs.at[g] + col, true, part, lane);
  else
    matrix_load_wide(b, inputs.at[g] + col, p.x_stride, true, inputs.count[g], part, lane,
                     packed_unit_columns(LINEAR_FORMAT));
}

// sums[i][g] += a[i] b[g - first], four matrices deep, for `count` eights of rows from `first` on: chains side by side.
template <typename T>
METAL_FUNC void linear_multiply(thread simdgroup_float8x8 (*sums)[8], thread simdgroup_matrix<T, 8, 8> (&a)[8][4],
                                thread simdgroup_matrix<T, 8, 8> (*b)[4], uint eights, uint first, uint count) {
  PACKED_UNROLL for (uint k = 0; k < 4; k += 2) PACKED_UNROLL for (uint g = 0; g < count; ++g)
      PACKED_UNROLL for (uint i = 0; i < eights; i += 2) {
    if (i + 1 < eights)
      matrix_multiply_wide(sums[i][first + g], sums[i + 1][first + g], a[i][k], a[i][k + 1], a[i + 1][k],
                           a[i + 1][k + 1], b[g][k], b[g][k + 1]);
    else
      matrix_multiply_deep(sums[i][first + g], a[i][k], a[i][k + 1], b[g][k], b[g][k + 1]);
  }
}

// ---- a slice --------------------------------------------------------------------------------------------------------

template <typename T>
METAL_FUNC void linear_load_panels(thread simdgroup_matrix<T, 8, 8> (&a)[4][8][4], thread const LinearPanels<T>& panels,
                                   uint eights, uint step, uint last, bool transpose, threadgroup T* part, uint lane) {
  PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
    if (step + u < last) {
      PACKED_UNROLL for (uint i = 0; i < eights; ++i)
          matrix_load_wide(a[u][i], panels.at[i] + (step + u) * 256, 32, transpose, 8, part, lane);
    }
  }
}

// sums = steps [first, last) of the panels times those of x. The first weights are loaded before the dispatch that
// makes x has ended.
template <typename T>
METAL_FUNC void linear_slice(thread simdgroup_float8x8 (&sums)[8][8], thread const LinearPanels<T>& panels, uint eights,
                             thread const LinearInputs<T>& inputs, constant LinearParams& p, uint first, uint last,
                             bool waits, threadgroup T* part, uint lane) {
  const uint tiles = LINEAR_ROWS / 8;
  simdgroup_matrix<T, 8, 8> a[4][8][4];
  linear_load_panels(a, panels, eights, first, last, false, part, lane);
  if (waits) wait_for_dispatches();
  // Short turns load the next weights before they are done; long ones have enough in flight, and spare the registers.
  const bool at_end = LINEAR_ROWS == 8 && LINEAR_UNROLL <= 2;
  for (uint step = first; step < last; step += LINEAR_UNROLL) {
    if (!at_end && step != first) linear_load_panels(a, panels, eights, step, last, false, part, lane);
    simdgroup_matrix<T, 8, 8> b[4][8][4];
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || step + u < last) {
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g)
            linear_load_input(b[u][g], inputs, g, (step + u) * 32, p, part, lane);
      }
    }
    simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || step + u < last) {
        linear_multiply(sums, a[u], b[u], eights, 0, tiles);
      }
    }
    if (at_end) linear_load_panels(a, panels, eights, step + LINEAR_UNROLL, last, false, part, lane);
  }
}

// What a simdgroup holds of blocks: units of the steps of a turn, and scales of 256 columns each where they come so.
struct LinearUnits {
  PackedUnit at[4][8];
  uint4 meta[4][8];
};
// Steps of a turn whose scales are loaded together.
METAL_FUNC uint linear_meta_steps() { return min(256 / linear_step_columns(LINEAR_FORMAT), LINEAR_UNROLL); }

METAL_FUNC void linear_load_step(thread LinearUnits& units, thread const PackedRow* rows, uint eights, uint step,
                                 uint u, uint lane) {
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
    if (packed_has_wide_meta(LINEAR_FORMAT))
      units.at[u][i] = packed_load_codes(LINEAR_FORMAT, rows[i], (step + u) * 4);
    else
      units.at[u][i] = packed_load(LINEAR_FORMAT, rows[i], (step + u) * 4 + lane % 4);
  }
}
METAL_FUNC void linear_load_metas(thread LinearUnits& units, thread const PackedRow* rows, uint eights, uint step,
                                  uint u) {
  if (!packed_has_wide_meta(LINEAR_FORMAT)) return;
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) units.meta[u][i] =
      packed_load_meta(rows[i], (step + u) / (256 / linear_step_columns(LINEAR_FORMAT)));
}

// x of a chunk is loaded as soon as that of the step before is multiplied.
constant bool LINEAR_AHEAD = LINEAR_ROWS <= 16;

// A chunk of 8 columns of the units of a step, of x.
METAL_FUNC void linear_load_chunk(thread simdgroup_half8x8 (&b)[8][4], thread const LinearInputs<half>& inputs,
                                  uint step, uint chunk, constant LinearParams& p, threadgroup half* part, uint lane) {
  PACKED_UNROLL for (uint g = 0; g < LINEAR_ROWS / 8; ++g)
      linear_load_input(b[g], inputs, g, step * linear_step_columns(LINEAR_FORMAT) + chunk * 8, p, part, lane);
}

// The steps [block, block + linear_meta_steps()) of a turn of the loop below. `next` is the turn whose units are loaded
// when these are multiplied, counted from where the rows are.
METAL_FUNC void linear_multiply_steps(thread simdgroup_float8x8 (&sums)[8][8], thread LinearUnits& units,
                                      thread simdgroup_half8x8 (&b)[4][8][4], thread const PackedRow* rows, uint eights,
                                      thread const LinearInputs<half>& inputs, constant LinearParams& p, uint step,
                                      uint block, uint last, bool more, uint next, thread uint& picker,
                                      threadgroup half* part, uint lane) {
  const uint tiles = LINEAR_ROWS / 8, chunks = packed_unit_columns(LINEAR_FORMAT) / 8;
  const uint whole = 256 / linear_step_columns(LINEAR_FORMAT), together = linear_meta_steps();
  PACKED_UNROLL for (uint u = block; u < block + together; ++u) {
    if (!LINEAR_AHEAD) {
      PACKED_UNROLL for (uint chunk = 0; chunk < chunks; ++chunk)
          linear_load_chunk(b[chunk], inputs, step + u, chunk, p, part, lane);
    }
    PackedHalfScales scales[8];
    const uint part_step = LINEAR_UNROLL % whole == 0 ? u % whole : (step + u) % whole;
    PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
      if (packed_has_wide_meta(LINEAR_FORMAT))
        scales[i] = packed_pick(LINEAR_FORMAT, units.meta[block][i], part_step, picker);
      else
        scales[i] = packed_half_scales(LINEAR_FORMAT, packed_scales(LINEAR_FORMAT, units.at[u][i]));
    }
    PACKED_UNROLL for (uint chunk = 0; chunk < chunks; ++chunk) {
      simdgroup_half8x8 a[8][4];
      PACKED_UNROLL for (uint i = 0; i < eights; ++i)
          matrix_set_wide(a[i], packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 0),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 1),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 2),
                          packed_decode_half(LINEAR_FORMAT, units.at[u][i], scales[i], chunk, 3), false, part, lane);
      linear_multiply(sums, a, b[chunk], eights, 0, tiles);
      if (LINEAR_AHEAD) linear_load_chunk(b[chunk], inputs, min(step + u + 1, last - 1), chunk, p, part, lane);
    }
    if (more) {
      linear_load_step(units, rows, eights, next, u, lane);
      if (u + 1 == block + together) linear_load_metas(units, rows, eights, next, block);
    }
    // Those loads are issued before the next unit is decoded.
    if (packed_has_wide_meta(LINEAR_FORMAT))
      picker = known_from_here(picker, (threadgroup uint*)part + lane);
    else
      simdgroup_barrier(mem_flags::mem_none);
  }
}

// The same for blocks. The registers of a unit, and where rows are few of a chunk of x, are loaded again as soon as
// they are multiplied.
METAL_FUNC void linear_slice_blocks(thread simdgroup_float8x8 (&sums)[8][8], thread const LinearPanels<half>& panels,
                                    uint eights, thread const LinearInputs<half>& inputs, constant LinearParams& p,
                                    uint first, uint last, bool waits, threadgroup half* part, uint lane) {
  const uint chunks = packed_unit_columns(LINEAR_FORMAT) / 8;
  const uint whole = 256 / linear_step_columns(LINEAR_FORMAT), together = linear_meta_steps();
  // Rows that move on with the steps have distances from them that are constants.
  const bool moves = packed_has_wide_meta(LINEAR_FORMAT) && LINEAR_UNROLL % whole == 0;
  const bool even = moves && LINEAR_UNROLL == whole;  // all turns are whole ones
  PackedRow rows[8];
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
    rows[i] = panels.row[i];
    if (moves) {
      rows[i].codes += first * rows[i].code_block;
      rows[i].high += first * rows[i].high_block;
      rows[i].meta += first / whole * rows[i].meta_block;
    }
  }
  LinearUnits units;
  PACKED_UNROLL for (uint block = 0; block < LINEAR_UNROLL; block += together) {
    if (first + block < last) {
      linear_load_metas(units, rows, eights, moves ? 0 : first, block);
      PACKED_UNROLL for (uint u = block; u < block + together; ++u)
          linear_load_step(units, rows, eights, moves ? 0 : first, u, lane);
    }
  }
  if (waits) wait_for_dispatches();
  if (first >= last) return;
  simdgroup_half8x8 b[4][8][4];
  if (LINEAR_AHEAD) {
    PACKED_UNROLL for (uint chunk = 0; chunk < chunks; ++chunk)
        linear_load_chunk(b[chunk], inputs, first, chunk, p, part, lane);
  }
  const uint end = even ? last - LINEAR_UNROLL : last;
  uint step = first, picker = packed_picker(LINEAR_FORMAT, lane % 4);
  if (kWideMatrices) ((threadgroup uint*)part)[lane] = picker;  // known_from_here
  for (; step < end; step += LINEAR_UNROLL) {
    PACKED_UNROLL for (uint block = 0; block < LINEAR_UNROLL; block += together) {
      if (block == 0 || step + block < last)
        linear_multiply_steps(sums, units, b, rows, eights, inputs, p, step, block, last,
                              even || step + LINEAR_UNROLL + block < last, moves ? LINEAR_UNROLL : step + LINEAR_UNROLL,
                              picker, part, lane);
    }
    if (moves) {
      PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
        rows[i].codes += LINEAR_UNROLL * rows[i].code_block;
        rows[i].high += LINEAR_UNROLL * rows[i].high_block;
        rows[i].meta += LINEAR_UNROLL / whole * rows[i].meta_block;
      }
    }
  }
  if (even) linear_multiply_steps(sums, units, b, rows, eights, inputs, p, step, 0, last, false, 0, picker, part, lane);
}

// The same for any format, type and number of columns, unit by unit, one matrix at a time: sums[at + i] of its panels
// i. `part` has an eight of x for each of LINEAR_ROWS / 8, then one of W for each panel, [8][32] a run of each unit;
// there is room for two runs of 16-bit numbers.
template <typename T>
METAL_FUNC void linear_slice_any(thread simdgroup_float8x8 (&sums)[8][8], uint at, uint format, device const uchar* w,
                                 constant PackedPlanes& planes, constant LinearColumns& of, uint slice_columns,
                                 uint slice, uint first_output, device const uchar* x, constant LinearParams& p,
                                 device const int* order, LinearItem item, threadgroup T* part, uint lane) {
  const uint columns = packed_unit_columns(format), chunks = columns / 8, tiles = LINEAR_ROWS / 8;
  const uint together = sizeof(T) == 4 ? 1 : min(chunks, 2u);
  PackedRow rows[4];
  PACKED_UNROLL for (uint i = 0; i < LINEAR_MATRIX; ++i) {
    const uint output = first_output + i * 8 + lane / 4;
    rows[i] = packed_row(w, planes, item.first_weight + min(output, p.outputs - 1));
  }
  uint x_rows[8];
  bool x_exists[8];
  PACKED_UNROLL for (uint g = 0; g < tiles; ++g) {
    const uint row = item.first_row + g * 8 + lane / 4;
    x_rows[g] = linear_x_row(p, order, row, item.last_row);
    x_exists[g] = row <= item.last_row;
  }
  const uint end = min((slice + 1) * slice_columns, of.cols), step_columns = linear_step_columns(format);
  for (uint col = slice * slice_columns; col < end; col += step_columns) {
    const uint unit = col / columns + lane % 4;
    LinearUnit<T> units[4];
    PACKED_UNROLL for (uint i = 0; i < LINEAR_MATRIX; ++i) units[i] =
        linear_load_unit<T>(format, rows[i], unit, unit * columns < of.cols);
    PACKED_UNROLL for (uint first = 0; first < chunks; first += together) {
      LinearEight<T> xs[2][8], ws[2][4];
      PACKED_UNROLL for (uint c = 0; c < together; ++c) {
        threadgroup T* corner = part + c * (tiles + LINEAR_MATRIX) * 256;
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g) {
          xs[c][g] = linear_zeros<T>();
          if (x_exists[g])
            xs[c][g] =
                linear_x8<T>(x, linear_first(of), of.cols, p.x_stride, x_rows[g], unit * columns + (first + c) * 8);
          matrix_put_wide(corner + g * 256, xs[c][g].at[0], xs[c][g].at[1], xs[c][g].at[2], xs[c][g].at[3], lane);
        }
        PACKED_UNROLL for (uint i = 0; i < LINEAR_MATRIX; ++i) {
          ws[c][i] = linear_decode<T>(format, units[i], first + c);
          matrix_put_wide(corner + (tiles + i) * 256, ws[c][i].at[0], ws[c][i].at[1], ws[c][i].at[2], ws[c][i].at[3],
                          lane);
        }
      }
      matrix_barrier();
      PACKED_UNROLL for (uint c = 0; c < together; ++c) {
        threadgroup const T* corner = part + c * (tiles + LINEAR_MATRIX) * 256;
        simdgroup_matrix<T, 8, 8> a[8][4], b[8][4];
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g) matrix_take_wide(
            b[g], xs[c][g].at[0], xs[c][g].at[1], xs[c][g].at[2], xs[c][g].at[3], true, corner + g * 256);
        PACKED_UNROLL for (uint i = 0; i < LINEAR_MATRIX; ++i) matrix_take_wide(
            a[i], ws[c][i].at[0], ws[c][i].at[1], ws[c][i].at[2], ws[c][i].at[3], false, corner + (tiles + i) * 256);
        linear_multiply(sums + at, a, b, LINEAR_MATRIX, 0, tiles);
      }
      matrix_barrier();
    }
  }
}

// Simdgroups of the threadgroup take a slice of the columns each; where there are more of them than slices, sets of
// them take outputs of their own.
template <typename T>
METAL_FUNC void linear_matrix(device const uchar* w, device const uchar* w_up, device const uchar* x,
                              device const float* bias, device const float* bias_up, device uchar* out,
                              constant LinearParams& p, constant LinearColumns* cuts, device const int* items,
                              device const int* starts, device const int* order, threadgroup uchar* memory, uint group,
                              uint thread_index, uint simdgroup, uint simdgroups, uint lane) {
  const uint eights = LINEAR_GATED ? 2 * LINEAR_MATRIX : LINEAR_MATRIX;  // panels, of both matrices
  const uint tiles = LINEAR_ROWS / 8;                                    // of 8 rows of x
  const uint round = eights <= 6 ? min(tiles, 2u) : 1;                   // of them added up at a time
  const uint slices = LINEAR_SLICES > 0 ? LINEAR_SLICES : p.columns.slices;
  const uint sets = simdgroups / slices, set = simdgroup / slices, slice = simdgroup - set * slices;
  const uint set_threads = slices * 32, set_thread = thread_index - set * set_threads;
  // Results of a round that a thread adds up, where they are few enough for what they are added to to be loaded ahead.
  const uint all = (2 * LINEAR_MATRIX * round + slices - 1) / slices;
  const uint own = LINEAR_ROWS > 8 && LINEAR_SLICES > 0 && !LINEAR_CUT && all <= kLinearLoadedAhead ? all : 0;
  // Eight rows alone are one row group; without slices the machine code is better for the division.
  const bool one_group = LINEAR_ROWS == 8 && !LINEAR_EXPERTS && LINEAR_SLICES > 1;
  const uint row_group = one_group ? 0 : group / p.output_groups;
  const uint first_output = ((group - row_group * p.output_groups) * sets + set) * (8 * LINEAR_MATRIX);
  if (LINEAR_EXPERTS || LINEAR_UNROLL == 0) wait_for_dispatches();
  const LinearItem item = linear_item(p, items, starts, row_group);
  if (!item.exists) return;

  const uint set_bytes = slices * 8 * round * linear_result_stride(eights) * 4;
  threadgroup float* results = (threadgroup float*)(memory + set * set_bytes);  // [slice][8 * round][output]
  threadgroup uchar* parts = memory + sets * set_bytes;
  // Behind what is multiplied. Where it is multiplied unit by unit, results follow in the same place.
  const uint parts_bytes = simdgroups * (LINEAR_UNROLL > 0 ? 512 : (tiles + LINEAR_MATRIX) * 1024);
  const uint before = LINEAR_UNROLL > 0 ? sets * set_bytes + parts_bytes : max(sets * set_bytes, parts_bytes);
  threadgroup float2* waiting = (threadgroup float2*)(memory + before) + set * (64 * LINEAR_MATRIX * tiles);
  for (uint cut = 0; cut < linear_cuts(p); ++cut) {
    constant LinearColumns& of = linear_columns(p, cuts, cut);
    device const uchar* weights = linear_cut_weights(w, of);
    simdgroup_float8x8 sums[8][8];
    PACKED_UNROLL for (uint i = 0; i < eights; ++i) PACKED_UNROLL for (uint g = 0; g < tiles; ++g) sums[i][g] =
        make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    if (LINEAR_UNROLL == 0) {
      threadgroup T* part =
          (threadgroup T*)memory + simdgroup * ((tiles + LINEAR_MATRIX) * (sizeof(T) == 4 ? 256 : 512));
      linear_slice_any<T>(sums, 0, LINEAR_FORMAT, weights, of.planes, of, of.slice_columns, slice, first_output, x, p,
                          order, item, part, lane);
      if (LINEAR_GATED)
        linear_slice_any<T>(sums, LINEAR_MATRIX, LINEAR_FORMAT_UP, w_up, p.planes_up, of, p.slice_columns_up, slice,
                            first_output, x, p, order, item, part, lane);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    } else {
      const uint step_columns = linear_step_columns(LINEAR_FORMAT);
      const uint steps = of.cols / step_columns, slice_steps = of.slice_columns / step_columns;
      const uint first = min(slice * slice_steps, steps), last = min(first + slice_steps, steps);
      const bool waits = !LINEAR_EXPERTS && cut == 0;
      if (LINEAR_BLOCKS) {
        const LinearPanels<half> panels =
            linear_panels<half>(weights, w_up, p, of.planes, item.first_weight, first_output, eights, lane);
        const LinearInputs<half> inputs = linear_inputs((device const half*)x + linear_first(of), p, order, item, lane);
        linear_slice_blocks(sums, panels, eights, inputs, p, first, last, waits,
                            (threadgroup half*)parts + simdgroup * 256, lane);
      } else {
        const LinearPanels<T> panels =
            linear_panels<T>(weights, w_up, p, of.planes, item.first_weight, first_output, eights, lane);
        const LinearInputs<T> inputs = linear_inputs((device const T*)x + linear_first(of), p, order, item, lane);
        linear_slice<T>(sums, panels, eights, inputs, p, first, last, waits, (threadgroup T*)parts + simdgroup * 256,
                        lane);
      }
    }
    PACKED_UNROLL for (uint done = 0; done < tiles; done += round) {
      const LinearAdder<T> adder = {cut,
                                    first_output,
                                    item.first_row + done * 8,
                                    item.last_row,
                                    LINEAR_CUT ? of.slices : slices,
                                    eights,
                                    round};
      PACKED_UNROLL for (uint i = 0; i < eights; ++i) PACKED_UNROLL for (uint g = 0; g < round; ++g)
          simdgroup_store(sums[i][done + g],
                          results + (slice * round + g) * 8 * linear_result_stride(eights) + i * 8,
                          linear_result_stride(eights), ulong2(0, 0), true);
      float before[kLinearLoadedAhead];
      PACKED_UNROLL for (uint k = 0; k < kLinearLoadedAhead; ++k) before[k] =
          k < own ? adder.before(p, out, set_thread + k * set_threads) : 0.0f;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      threadgroup float2* waits_here = waiting + done * (64 * LINEAR_MATRIX);
      PACKED_UNROLL for (uint k = 0; k < kLinearLoadedAhead; ++k) {
        const uint at = set_thread + k * set_threads;
        if (k < own && adder.has(p, at)) adder.add(p, bias, bias_up, out, results, waits_here, at, before[k]);
      }
      if (own == 0) {
        for (uint at = set_thread; at < adder.outputs() * 8 * round; at += set_threads)
          if (adder.has(p, at))
            adder.add(p, bias, bias_up, out, results, waits_here, at, adder.before(p, out, at));
      }
      if (LINEAR_CUT || done + round < tiles) threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

// ---- many of the few ------------------------------------------------------------------------------------------------

// A part of x is [unroll][LINEAR_ROWS][32]. A thread brings pairs of 16 bytes, of rows eight apart: first to a place of
// its own in threadgroup memory, and a turn later to where simdgroups take them from. Rows past the last repeat it;
// what comes of them is not stored.
METAL_FUNC uint linear_pairs() { return LINEAR_UNROLL * LINEAR_ROWS * 2; }
METAL_FUNC void linear_begin_input(threadgroup uint4* own, device const uchar* x, constant LinearParams& p,
                                   uint first_row, uint step, uint thread_index) {
  const uint threads = LINEAR_SHARED * 32;
  PACKED_UNROLL for (uint first = 0; first < linear_pairs(); first += threads) {
    const uint at = first + thread_index, pair = at / 32, lane = at % 32;
    if (linear_pairs() % threads == 0 || at < linear_pairs()) {
      const uint u = pair / (LINEAR_ROWS / 16), row = first_row + pair % (LINEAR_ROWS / 16) * 16 + lane / 4;
      const uint col = (step + u) * 32 + lane % 4 * 8;
      begin_copy(own + pair * 64 + lane, (device const uint4*)(x + (min(row, p.rows - 1) * p.x_stride + col) * 2));
      begin_copy(own + pair * 64 + 32 + lane,
                 (device const uint4*)(x + (min(row + 8, p.rows - 1) * p.x_stride + col) * 2));
    }
  }
  end_copies();
}
METAL_FUNC void linear_put_input(threadgroup uint4* tile, threadgroup const uint4* own, uint thread_index) {
  const uint threads = LINEAR_SHARED * 32;
  wait_for_copies();
  PACKED_UNROLL for (uint first = 0; first < linear_pairs(); first += threads) {
    const uint at = first + thread_index, pair = at / 32 * 64, lane = at % 32;
    if (linear_pairs() % threads == 0 || at < linear_pairs())
      matrix_put_pair(tile + pair, own[pair + lane], own[pair + 32 + lane], lane);
  }
}

// From 32 rows on x costs more than W when every simdgroup reads it. Here LINEAR_SHARED simdgroups, each with outputs
// of its own and all the columns, take x from threadgroup memory, two parts by turns; it is the left operand. Slices
// follow one another; their sums so far wait in threadgroup memory too, so that registers are for weights on their way.
// With LINEAR_SPLIT a threadgroup takes one slice and leaves its sums in partials, [slice][row][output], for
// linear_add: where outputs are few, there would be too few threadgroups. 16-bit weights alone; slices are equally
// long, and LINEAR_UNROLL divides them.
template <typename T>
METAL_FUNC void linear_shared(device const uchar* w, device const uchar* w_up, device const uchar* x,
                              device const float* bias, device const float* bias_up, device uchar* out,
                              constant LinearParams& p, device float* partials, threadgroup uchar* memory, uint group,
                              uint thread_index, uint simdgroup, uint lane) {
  const uint eights = LINEAR_GATED ? 2 * LINEAR_MATRIX : LINEAR_MATRIX;
  const uint tiles = LINEAR_ROWS / 8;
  const uint first_output = (group % p.output_groups * LINEAR_SHARED + simdgroup) * (8 * LINEAR_MATRIX);
  const uint slice_steps = p.columns.slice_columns / 32;
  const uint row_group = group / p.output_groups / (LINEAR_SPLIT ? LINEAR_SLICES : 1);
  const uint slice = LINEAR_SPLIT ? group / p.output_groups % LINEAR_SLICES : 0;
  const uint first_row = row_group * LINEAR_ROWS;
  const uint first = slice * slice_steps, last = LINEAR_SPLIT ? first + slice_steps : p.columns.cols / 32;
  const uint part = LINEAR_UNROLL * LINEAR_ROWS * 4;
  threadgroup uint4* own = (threadgroup uint4*)memory;  // [pairs / 32][2][32]
  threadgroup uint4* tile = own + part;                 // [2][unroll][LINEAR_ROWS / 16][64]
  threadgroup float* totals = (threadgroup float*)(tile + 2 * part) + simdgroup * tiles * eights * 64;

  const LinearPanels<T> panels = linear_panels<T>(w, w_up, p, p.columns.planes, 0, first_output, eights, lane);
  simdgroup_matrix<T, 8, 8> b[4][8][4];
  linear_load_panels(b, panels, eights, first, last, true, (threadgroup T*)memory, lane);
  simdgroup_float8x8 sums[8][8];  // of a slice, [8 rows][8 outputs]
  PACKED_UNROLL for (uint g = 0; g < tiles; ++g) PACKED_UNROLL for (uint i = 0; i < eights; ++i) sums[g][i] =
      make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  wait_for_dispatches();
  linear_begin_input(own, x, p, first_row, first, thread_index);
  linear_put_input(tile, own, thread_index);
  if (first + LINEAR_UNROLL < last) linear_begin_input(own, x, p, first_row, first + LINEAR_UNROLL, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  uint side = 0, slice_end = first + slice_steps;
  for (uint step = first; step < last; step += LINEAR_UNROLL) {
    const bool more = step + LINEAR_UNROLL < last;
    if (more) linear_put_input(tile + (side ^ 1) * part, own, thread_index);
    if (step + 2 * LINEAR_UNROLL < last)
      linear_begin_input(own, x, p, first_row, step + 2 * LINEAR_UNROLL, thread_index);
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      PACKED_UNROLL for (uint k = 0; k < 4; k += 2) PACKED_UNROLL for (uint g = 0; g < tiles; g += 2) {
        simdgroup_matrix<T, 8, 8> upper[2], lower[2];
        matrix_load_pair(upper, lower, tile + side * part + (u * tiles + g) * 32, k, lane);
        PACKED_UNROLL for (uint i = 0; i < eights; ++i) matrix_multiply_wide(
            sums[g][i], sums[g + 1][i], upper[0], upper[1], lower[0], lower[1], b[u][i][k], b[u][i][k + 1]);
      }
      if (more) {
        PACKED_UNROLL for (uint i = 0; i < eights; ++i) matrix_load_wide(
            b[u][i], panels.at[i] + (step + LINEAR_UNROLL + u) * 256, 32, true, 8, (threadgroup T*)memory, lane);
      }
      simdgroup_barrier(mem_flags::mem_none);  // the next weights are under way
    }
    side ^= 1;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (!LINEAR_SPLIT && step + LINEAR_UNROLL == slice_end) {
      PACKED_UNROLL for (uint g = 0; g < tiles; ++g) PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
        threadgroup float* total = totals + (g * eights + i) * 64;
        if (slice_end != slice_steps) {
          simdgroup_float8x8 before;
          simdgroup_load(before, total, 8);
          matrix_add(before, sums[g][i]);
          simdgroup_store(before, total, 8);
        } else {
          simdgroup_store(sums[g][i], total, 8);
        }
        sums[g][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
      }
      slice_end += slice_steps;
    }
  }

  if (LINEAR_SPLIT) {
    const ulong padded = (p.outputs + 7) / 8 * 8;
    device float* to = partials + ulong(row_group * LINEAR_SLICES + slice) * LINEAR_ROWS * padded + first_output;
    PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
      if (first_output + i * 8 < p.outputs) {
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g) simdgroup_store(sums[g][i], to + g * 8 * padded + i * 8, padded);
      }
    }
    return;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const uint outputs = 8 * LINEAR_MATRIX;
  for (uint at = lane; at < outputs * LINEAR_ROWS; at += 32) {
    const uint o = at % outputs, row = at / outputs;
    if (first_row + row < p.rows && first_output + o < p.outputs) {
      threadgroup const float* from = totals + (row / 8 * eights + o / 8) * 64 + row % 8 * 8 + o % 8;
      linear_finish(p.out, bias, bias_up, out, first_row + row, first_output + o, from[0],
                    LINEAR_GATED ? from[LINEAR_MATRIX * 64] : 0.0f);
    }
  }
}
