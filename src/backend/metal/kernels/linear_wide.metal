// Many rows on GPUs whose simdgroups multiply four together (SOFTMETAL_WARPGROUPS): tiles of 128 rows of W by
// LINEAR_ROWS rows of x. Two warpgroups have 64 rows of W each, whose numbers go from threadgroup memory, codes of
// blocks through a decoder, into registers, just as lanes hold them where rows are few; so the columns that meet in an
// instruction are the same, and nothing has to be unpacked before. Of a gated product every other eight rows are those
// of the second matrix. A third warpgroup brings what the two multiply, through two rings in threadgroup memory: stages
// of weights (64 columns of numbers, 256 of blocks), and turns of 64 columns of x, which linear_wide_inputs has laid
// out.
//
// A threadgroup takes tiles until there are none; where it is told to (LINEAR_SPLIT), one slice of a tile at a time.
#include "linear_params.h"

#ifdef SOFTMETAL_WARPGROUPS

constant constexpr uint kWidePanels = kWideOutputs / 8;
constant constexpr uint kWideBringers = 128;  // threads of the third warpgroup
constant bool WIDE_BLOCKS = LINEAR_FORMAT > packed_bf16;

METAL_FUNC uint wide_stage_columns() { return WIDE_BLOCKS ? 256 : kLinearTurn; }
// Bytes of eight rows of a stage: codes, their high bits, scales.
METAL_FUNC uint wide_code_bytes() { return WIDE_BLOCKS ? 256 * packed_low_bits(LINEAR_FORMAT) : 1024; }
METAL_FUNC uint wide_high_bytes() { return WIDE_BLOCKS ? 256 * packed_high_bits(LINEAR_FORMAT) : 0; }
METAL_FUNC uint wide_meta_bytes() { return WIDE_BLOCKS ? 8 * packed_meta_bytes(LINEAR_FORMAT) : 0; }
METAL_FUNC uint wide_panel_bytes() { return wide_code_bytes() + wide_high_bytes() + wide_meta_bytes(); }
METAL_FUNC uint wide_turn_bytes() { return LINEAR_ROWS * kLinearTurn * 2; }  // of x

// A place in a ring, and how often it went round.
struct WideRing {
  uint at, phase, count;
  uint full, empty;  // its barriers, 8 bytes a stage

  METAL_FUNC void next() thread {
    at += 1;
    if (at == count) {
      at = 0;
      phase ^= 1;
    }
  }
  METAL_FUNC uint is_full() const thread { return full + at * 8; }
  METAL_FUNC uint is_empty() const thread { return empty + at * 8; }
};
struct WideRings {
  uint weights, x;  // where the stages are
  WideRing w, t;
};
METAL_FUNC WideRings wide_rings(constant LinearParams& p, threadgroup uchar* memory) {
  WideRings r;
  r.weights = softmetal_address(memory);
  r.x = r.weights + p.wide_stages * kWidePanels * wide_panel_bytes();
  const uint barriers = r.x + p.wide_turns * wide_turn_bytes();
  r.w = {0, 0, p.wide_stages, barriers, barriers + p.wide_stages * 8};
  r.t = {0, 0, p.wide_turns, barriers + p.wide_stages * 16, barriers + p.wide_stages * 16 + p.wide_turns * 8};
  return r;
}

// What a threadgroup does at a time: stages [first, last) of a tile.
struct WideWork {
  uint row_tile, output_tile, slice, first, last;
};
METAL_FUNC uint wide_works(constant LinearParams& p) {
  return p.row_tiles * p.output_groups * (LINEAR_SPLIT ? LINEAR_SLICES : 1);
}
METAL_FUNC WideWork wide_work(constant LinearParams& p, uint number) {
  WideWork work;
  work.row_tile = number % p.row_tiles;
  work.output_tile = number / p.row_tiles % p.output_groups;
  work.slice = number / p.row_tiles / p.output_groups;
  const uint stages = p.columns.cols / wide_stage_columns(), each = p.columns.slice_columns / wide_stage_columns();
  work.first = LINEAR_SPLIT ? work.slice * each : 0;
  work.last = LINEAR_SPLIT ? min(work.first + each, stages) : stages;
  return work;
}

// Panel `place` of a tile, and whether there is one.
struct WidePanel {
  device const uchar* at;
  bool exists;
};
METAL_FUNC WidePanel wide_panel(device const uchar* w, device const uchar* w_up, constant LinearParams& p,
                                uint output_tile, uint place) {
  const uint panel = LINEAR_GATED ? output_tile * (kWidePanels / 2) + place / 2 : output_tile * kWidePanels + place;
  const bool is_up = LINEAR_GATED && place % 2 == 1;
  WidePanel found;
  found.exists = panel * 8 < p.outputs;
  found.at = (is_up ? w_up : w) + ulong(panel) * p.columns.planes.panel_bytes;
  return found;
}

// Pieces of 16 bytes of each panel of a tile: a thread takes the same one of every few panels. Of a tile all of whose
// panels exist, where the first two are, and how far those two behind them.
struct WidePieces {
  device const uchar* at[2];
  uint place, next, step;
};
METAL_FUNC WidePieces wide_pieces(device const uchar* w, device const uchar* w_up, constant LinearParams& p,
                                  uint output_tile, uint pieces, uint thread_index) {
  WidePieces own;
  own.place = thread_index / pieces;
  own.next = kWideBringers / pieces;
  own.step = (LINEAR_GATED ? own.next : 2 * own.next) * p.columns.planes.panel_bytes;
  PACKED_UNROLL for (uint i = 0; i < 2; ++i) own.at[i] =
      wide_panel(w, w_up, p, output_tile, own.place + i * own.next).at + thread_index % pieces * 16;
  return own;
}
METAL_FUNC void wide_bring_plane(WidePieces own, device const uchar* w, device const uchar* w_up,
                                 constant LinearParams& p, uint output_tile, bool whole, ulong from, uint to,
                                 uint pieces, uint thread_index) {
  to += own.place * wide_panel_bytes() + thread_index % pieces * 16;
  const uint apart = own.next * wide_panel_bytes();
  if (whole) {
    device const uchar* even = own.at[0] + from;
    device const uchar* odd = own.at[1] + from;
    PACKED_UNROLL for (uint i = 0; i < kWidePanels * pieces / kWideBringers; i += 2) {
      softmetal_copy(to + i * apart, even);
      softmetal_copy(to + (i + 1) * apart, odd);
      even += own.step;
      odd += own.step;
    }
    return;
  }
  MATRIX_ROLLED for (uint i = 0; i < kWidePanels * pieces / kWideBringers; ++i) {
    const WidePanel panel = wide_panel(w, w_up, p, output_tile, own.place + i * own.next);
    if (panel.exists) softmetal_copy(to + i * apart, panel.at + from + thread_index % pieces * 16);
  }
}
// Scales, of whose pieces there need not be a power of two.
METAL_FUNC void wide_bring_scales(device const uchar* w, device const uchar* w_up, constant LinearParams& p,
                                  uint output_tile, ulong from, uint to, uint thread_index) {
  const uint pieces = wide_meta_bytes() / 16;
  if (pieces == 0) return;
  PACKED_UNROLL for (uint i = 0; i < (kWidePanels * pieces + kWideBringers - 1) / kWideBringers; ++i) {
    const uint at = i * kWideBringers + thread_index, place = at / pieces, piece = at % pieces;
    const WidePanel panel = wide_panel(w, w_up, p, output_tile, place);
    if (place < kWidePanels && panel.exists)
      softmetal_copy(to + place * wide_panel_bytes() + piece * 16, panel.at + from + piece * 16);
  }
}

// Both operands of a stage. Turns of x come first, by one thread: weights of the next stages need not wait for it.
METAL_FUNC void wide_bring(device const uchar* w, device const uchar* w_up, device const uchar* tiles,
                           constant LinearParams& p, WideRings rings, uint group, uint groups, uint thread_index) {
  const uint turns = p.columns.cols / kLinearTurn, each = wide_stage_columns() / kLinearTurn;
  const bool brings_x = thread_index == kWideBringers - 32;
  bool waited = false;
  for (uint number = group; number < wide_works(p); number += groups) {
    const WideWork work = wide_work(p, number);
    const uint code_pieces = wide_code_bytes() / 16, high_pieces = wide_high_bytes() / 16;
    const bool whole = (work.output_tile + 1) * (kWidePanels / (LINEAR_GATED ? 2 : 1)) * 8 <= p.outputs;
    const WidePieces codes = wide_pieces(w, w_up, p, work.output_tile, code_pieces, thread_index);
    WidePieces high = codes;
    if (high_pieces > 0) high = wide_pieces(w, w_up, p, work.output_tile, high_pieces, thread_index);
    for (uint stage = work.first; stage < work.last; ++stage) {
      if (brings_x) {
        if (!waited) wait_for_dispatches();
        waited = true;
        for (uint turn = stage * each; turn < (stage + 1) * each; ++turn) {
          softmetal_wait(rings.t.is_empty(), rings.t.phase ^ 1);
          softmetal_arrive_with(rings.t.is_full(), wide_turn_bytes());
          softmetal_copy_many(rings.x + rings.t.at * wide_turn_bytes(),
                              tiles + (ulong(work.row_tile) * turns + turn) * wide_turn_bytes(), wide_turn_bytes(),
                              rings.t.is_full());
          rings.t.next();
        }
      }
      simdgroup_barrier(mem_flags::mem_none);
      softmetal_wait(rings.w.is_empty(), rings.w.phase ^ 1);
      const uint to = rings.weights + rings.w.at * kWidePanels * wide_panel_bytes();
      wide_bring_plane(codes, w, w_up, p, work.output_tile, whole, ulong(stage) * wide_code_bytes(), to, code_pieces,
                       thread_index);
      if (high_pieces > 0)
        wide_bring_plane(high, w, w_up, p, work.output_tile, whole,
                         p.columns.planes.high_offset + ulong(stage) * wide_high_bytes(), to + wide_code_bytes(),
                         high_pieces, thread_index);
      wide_bring_scales(w, w_up, p, work.output_tile, p.columns.planes.meta_offset + ulong(stage) * wide_meta_bytes(),
                        to + wide_code_bytes() + wide_high_bytes(), thread_index);
      softmetal_arrive_behind_copies(rings.w.is_full());
      rings.w.next();
    }
  }
  softmetal_finish_copies();
}

// ---- left operands --------------------------------------------------------------------------------------------------

// Of two rows of W, 32 columns: two products.
template <typename T>
METAL_FUNC void wide_set(thread uint (&a)[4][4], uint first, LinearEight<T> upper, LinearEight<T> lower) {
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) {
    a[first + i / 2][i % 2 * 2] = as_type<uint>(upper.at[i]);
    a[first + i / 2][i % 2 * 2 + 1] = as_type<uint>(lower.at[i]);
  }
}
// A row of a stage in threadgroup memory, as those of the matrix in device memory are.
METAL_FUNC PackedRow wide_row(threadgroup const uchar* panel, constant LinearParams& p, uint lane) {
  PackedRow row;
  row.codes = panel + lane / 4 * (4 * packed_unit_bytes(LINEAR_FORMAT));
  row.high = panel + wide_code_bytes() + lane / 4 * (16 * packed_high_bits(LINEAR_FORMAT));
  row.meta = panel + wide_code_bytes() + wide_high_bytes() + lane / 4 * packed_meta_bytes(LINEAR_FORMAT);
  row.code_block = 8 * 4 * packed_unit_bytes(LINEAR_FORMAT);
  row.high_block = 8 * 16 * packed_high_bits(LINEAR_FORMAT);
  row.meta_block = 0;
  constant PackedPlanes& planes = p.columns.planes;
  row.numbers = uint4(planes.numbers[0], planes.numbers[1], planes.numbers[2], planes.numbers[3]);
  return row;
}
// Turn `turn` of a stage: the two panels of this simdgroup.
template <typename T>
struct WideUnits {
  LinearUnit<T> upper, lower;
};
template <typename T>
METAL_FUNC void wide_left(thread uint (&a)[4][4], thread WideUnits<T>& units, threadgroup const uchar* panels,
                          constant LinearParams& p, uint turn, uint lane) {
  if (!WIDE_BLOCKS) {
    PACKED_UNROLL for (uint block = 0; block < 2; ++block) {
      threadgroup const uchar* from = panels + block * 512 + lane * 16;
      wide_set<T>(a, block * 2, linear_of_bits<T>(*(threadgroup const uint4*)from),
                  linear_of_bits<T>(*(threadgroup const uint4*)(from + 1024)));
    }
    return;
  }
  const bool bytes = packed_unit_columns(LINEAR_FORMAT) == 16;
  if (bytes || turn % 2 == 0) {
    const uint unit = (bytes ? turn : turn / 2) * 4 + lane % 4;
    units.upper = linear_load_unit<T>(LINEAR_FORMAT, wide_row(panels, p, lane), unit, true);
    units.lower = linear_load_unit<T>(LINEAR_FORMAT, wide_row(panels + wide_panel_bytes(), p, lane), unit, true);
  }
  const uint chunk = bytes ? 0 : turn % 2 * 2;
  PACKED_UNROLL for (uint block = 0; block < 2; ++block)
      wide_set<T>(a, block * 2, linear_decode<T>(LINEAR_FORMAT, units.upper, chunk + block),
                  linear_decode<T>(LINEAR_FORMAT, units.lower, chunk + block));
}

// ---- products -------------------------------------------------------------------------------------------------------

// The products of a turn, four times 16 columns, begin.
template <typename T>
METAL_FUNC void wide_begin_turn(thread float (&sums)[LINEAR_ROWS / 2], thread uint (&a)[4][4], thread WideRings& rings,
                                bool starts) {
  softmetal_wait(rings.t.is_full(), rings.t.phase);
  ulong right[4];
  uint adds[4];
  PACKED_UNROLL for (uint k = 0; k < 4; ++k) {
    right[k] = softmetal_right(rings.x + rings.t.at * wide_turn_bytes() + k * (LINEAR_ROWS * 32), LINEAR_ROWS * 16);
    adds[k] = starts && k == 0 ? 0 : 1;
    softmetal_settle(a[k], right[k], adds[k]);
  }
  softmetal_begin_products();
  PACKED_UNROLL for (uint k = 0; k < 4; ++k)
      softmetal_multiply<LINEAR_ROWS, is_same_v<T, half>>(sums, a[k], right[k], adds[k]);
  softmetal_end_products();
}
METAL_FUNC void wide_release(uint barrier, uint lane) {
  simdgroup_barrier(mem_flags::mem_none);
  if (lane == 0) softmetal_arrive(barrier);
}

// sums = stages [first, last), which are one slice. Left operands of a turn are made while the turn before is
// multiplied.
template <typename T>
METAL_FUNC void wide_slice(thread float (&sums)[LINEAR_ROWS / 2], constant LinearParams& p, thread WideRings& rings,
                           threadgroup const uchar* memory, uint first, uint last, uint simdgroup, uint lane) {
  threadgroup const uchar* own = memory + simdgroup * 2 * wide_panel_bytes();
  WideUnits<T> units;
  uint a[2][4][4];
  uint used_w = 0, used_t = 0;
  if (WIDE_BLOCKS) {
    softmetal_wait(rings.w.is_full(), rings.w.phase);
    threadgroup const uchar* panels = own + rings.w.at * kWidePanels * wide_panel_bytes();
    wide_left<T>(a[0], units, panels, p, 0, lane);
    for (uint stage = first; stage < last; ++stage) {
      PACKED_UNROLL for (uint turn = 0; turn < 4; ++turn) {
        wide_begin_turn<T>(sums, a[turn % 2], rings, stage == first && turn == 0);
        if (turn < 3) {
          wide_left<T>(a[(turn + 1) % 2], units, panels, p, turn + 1, lane);
        } else {
          wide_release(rings.w.is_empty(), lane);
          rings.w.next();
          if (stage + 1 < last) {
            softmetal_wait(rings.w.is_full(), rings.w.phase);
            panels = own + rings.w.at * kWidePanels * wide_panel_bytes();
            wide_left<T>(a[0], units, panels, p, 0, lane);
          }
        }
        softmetal_wait_for_products<0>();
        wide_release(rings.t.is_empty(), lane);
        rings.t.next();
      }
    }
    return;
  }
  for (uint stage = first; stage < last; stage += 2) {
    PACKED_UNROLL for (uint odd = 0; odd < 2; ++odd) {
      if (stage + odd < last) {
        softmetal_wait(rings.w.is_full(), rings.w.phase);
        threadgroup const uchar* panels = own + rings.w.at * kWidePanels * wide_panel_bytes();
        const bool starts = stage == first && odd == 0;
        wide_left<T>(a[odd], units, panels, p, 0, lane);
        wide_begin_turn<T>(sums, a[odd], rings, starts);
        if (!starts) {
          softmetal_wait_for_products<1>();
          wide_release(used_t, lane);
          wide_release(used_w, lane);
        }
        used_t = rings.t.is_empty();
        used_w = rings.w.is_empty();
        rings.t.next();
        rings.w.next();
      }
    }
  }
  softmetal_wait_for_products<0>();
  wide_release(used_t, lane);
  wide_release(used_w, lane);
}

// Where result `i` of a lane goes, and whether there is such a one.
struct WidePlace {
  uint r, row, output;  // the row in its tile, and of all
  bool exists;
};
METAL_FUNC WidePlace wide_place(constant LinearParams& p, WideWork work, uint i, uint simdgroup, uint lane) {
  WidePlace place;
  const uint lower = i / 2 % 2;
  place.r = i / 4 * 8 + lane % 4 * 2 + i % 2;
  place.row = work.row_tile * LINEAR_ROWS + place.r;
  place.output = (work.output_tile * kWideOutputs + simdgroup * 16) / (LINEAR_GATED ? 2 : 1) + lane / 4 +
                 (LINEAR_GATED ? 0 : lower * 8);
  place.exists = place.row < p.rows && place.output < p.outputs && !(LINEAR_GATED && lower == 1);
  return place;
}
template <typename T>
METAL_FUNC void wide_store(thread const float (&totals)[LINEAR_ROWS / 2], device const float* bias,
                           device const float* bias_up, device uchar* out, device float* partials,
                           constant LinearParams& p, WideWork work, uint simdgroup, uint lane) {
  const uint padded = (p.outputs + 7) / 8 * 8;
  if (!LINEAR_SPLIT && !LINEAR_GATED && p.out.accumulate) {
    // Half of what is added to is on its way before the first of it is used.
    constexpr uint kHalf = LINEAR_ROWS / 4;
    PACKED_UNROLL for (uint first = 0; first < 2 * kHalf; first += kHalf) {
      float before[kHalf];
      PACKED_UNROLL for (uint i = 0; i < kHalf; ++i) {
        const WidePlace place = wide_place(p, work, first + i, simdgroup, lane);
        before[i] = 0.0f;
        if (place.exists) before[i] = ((device const float*)out)[ulong(place.row) * p.out.stride + place.output];
      }
      PACKED_UNROLL for (uint i = 0; i < kHalf; ++i) {
        const WidePlace place = wide_place(p, work, first + i, simdgroup, lane);
        const float sum = linear_unboost<T>(LINEAR_FORMAT, totals[first + i]);
        if (place.exists)
          ((device float*)out)[ulong(place.row) * p.out.stride + place.output] =
              before[i] + linear_value(p.out, bias, bias_up, place.output, sum, 0.0f);
      }
    }
    return;
  }
  PACKED_UNROLL for (uint i = 0; i < LINEAR_ROWS / 2; ++i) {
    const WidePlace place = wide_place(p, work, i, simdgroup, lane);
    if (!place.exists) continue;
    const float up = LINEAR_GATED ? totals[i + 2] : 0.0f;
    if (LINEAR_SPLIT)
      partials[(ulong(work.row_tile * LINEAR_SLICES + work.slice) * LINEAR_ROWS + place.r) * padded + place.output] =
          totals[i];
    else
      linear_finish(p.out, bias, bias_up, out, place.row, place.output, linear_unboost<T>(LINEAR_FORMAT, totals[i]),
                    linear_unboost<T>(LINEAR_FORMAT, up));
  }
}

template <typename T>
METAL_FUNC void wide_multiply(device const float* bias, device const float* bias_up, device uchar* out,
                              device float* partials, constant LinearParams& p, WideRings rings,
                              threadgroup const uchar* memory, uint group, uint groups, uint simdgroup, uint lane) {
  const uint each = p.columns.slice_columns / wide_stage_columns();
  bool waited = false;
  for (uint number = group; number < wide_works(p); number += groups) {
    const WideWork work = wide_work(p, number);
    float totals[LINEAR_ROWS / 2];
    for (uint first = work.first; first<work.last; first = work.last - first> each ? first + each : work.last) {
      // Set by the first product, whatever they are; numbers that a compiler knows it would set between products.
      float sums[LINEAR_ROWS / 2];
      PACKED_UNROLL for (uint i = 0; i < LINEAR_ROWS / 2; ++i) sums[i] = as_type<float>(lane);
      wide_slice<T>(sums, p, rings, memory, first, work.last - first > each ? first + each : work.last, simdgroup,
                    lane);
      if (first == work.first) {
        PACKED_UNROLL for (uint i = 0; i < LINEAR_ROWS / 2; ++i) totals[i] = sums[i];
      } else {
        PACKED_UNROLL for (uint i = 0; i < LINEAR_ROWS / 2; ++i) totals[i] += sums[i];
      }
    }
    if (!waited) wait_for_dispatches();  // what is overwritten is read no more
    waited = true;
    wide_store<T>(totals, bias, bias_up, out, partials, p, work, simdgroup, lane);
  }
}

// What becomes of a threadgroup: `Take` and `Give` are the registers of a thread that multiplies, and of one that
// brings.
template <typename T, uint Take, uint Give>
METAL_FUNC void wide_run(device const uchar* w, device const uchar* w_up, device const uchar* tiles,
                         device const float* bias, device const float* bias_up, device uchar* out,
                         device float* partials, constant LinearParams& p, threadgroup uchar* memory, uint group,
                         uint groups, uint thread_index, uint lane, uint simdgroup) {
  const WideRings rings = wide_rings(p, memory);
  if (thread_index == 0) {
    for (uint i = 0; i < rings.w.count; ++i) {
      softmetal_barrier_begin(rings.w.full + i * 8, kWideBringers);
      softmetal_barrier_begin(rings.w.empty + i * 8, 8);
    }
    for (uint i = 0; i < rings.t.count; ++i) {
      softmetal_barrier_begin(rings.t.full + i * 8, 1);
      softmetal_barrier_begin(rings.t.empty + i * 8, 8);
    }
    softmetal_barriers_begun();
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup < 8) {
    softmetal_take_registers<Take>();
    wide_multiply<T>(bias, bias_up, out, partials, p, rings, memory, group, groups, simdgroup, lane);
  } else {
    softmetal_give_registers<Give>();
    wide_bring(w, w_up, tiles, p, rings, group, groups, thread_index - 256);
  }
}

#define WIDE_ARGUMENTS                                                                                                \
  device const uchar *w [[buffer(0)]], device const uchar *w_up [[buffer(1), function_constant(LINEAR_GATED)]],       \
      device const uchar *tiles [[buffer(2)]], device const float *bias [[buffer(3)]],                                \
      device const float *bias_up [[buffer(4), function_constant(LINEAR_GATED)]], device uchar *out [[buffer(5)]],    \
      constant LinearParams &p [[buffer(6)]], device float *partials [[buffer(10), function_constant(LINEAR_SPLIT)]], \
      threadgroup uchar *memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],                      \
      uint groups [[threadgroups_per_grid]], uint thread_index [[thread_index_in_threadgroup]],                       \
      uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]

template <typename T>
[[kernel, max_total_threads_per_threadgroup(384)]] [[softmetal_together(1)]] STARTS_EARLY void linear_wide(
    WIDE_ARGUMENTS) {
  wide_run<T, 216, 72>(w, w_up, tiles, bias, bias_up, out, partials, p, memory, group, groups, thread_index, lane,
                       simdgroup);
}
// Tiles of so few rows that a multiprocessor has room for two: while one decodes, waits or stores, the other goes on.
template <typename T>
[[kernel, max_total_threads_per_threadgroup(384)]] [[softmetal_together(2)]] STARTS_EARLY void linear_wide_twice(
    WIDE_ARGUMENTS) {
  wide_run<T, 96, 48>(w, w_up, tiles, bias, bias_up, out, partials, p, memory, group, groups, thread_index, lane,
                      simdgroup);
}
#undef WIDE_ARGUMENTS

// out = x in tiles of LINEAR_ROWS rows, the columns of a turn of 64 after another: [tile][turn][8 eights of columns]
// [rows][16 bytes]. The columns of an eight are those that meet in an instruction. A thread takes 32 columns of a row.
template <typename T>
[[kernel]] void linear_wide_inputs(device const uchar* x [[buffer(0)]], device uint4* out [[buffer(1)]],
                                   constant LinearParams& p [[buffer(2)]],
                                   uint2 group [[threadgroup_position_in_grid]],  // turn, tile
                                   uint thread_index [[thread_index_in_threadgroup]]) {
  const uint r = thread_index % LINEAR_ROWS, block = thread_index / LINEAR_ROWS, row = group.y * LINEAR_ROWS + r;
  LinearEight<T> runs[4];
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) {
    runs[i] = linear_zeros<T>();
    if (row < p.rows)
      runs[i] =
          linear_x8<T>(x, 0, p.columns.cols, p.x_stride, row, linear_run_column(LINEAR_FORMAT, group.x, block * 4 + i));
  }
  const uint turns = p.columns.cols / kLinearTurn;
  device uint4* to = out + ((ulong(group.y) * turns + group.x) * 8 + block * 4) * LINEAR_ROWS + r;
  PACKED_UNROLL for (uint pair = 0; pair < 4; ++pair) to[pair * LINEAR_ROWS] =
      uint4(as_type<uint>(runs[0].at[pair]), as_type<uint>(runs[1].at[pair]), as_type<uint>(runs[2].at[pair]),
            as_type<uint>(runs[3].at[pair]));
}

#define WIDE_KERNELS(name, T)                                                                                        \
  template [[host_name("linear_wide_" #name)]] [[kernel]] decltype(linear_wide<T>) linear_wide<T>;                   \
  template [[host_name("linear_wide_twice_" #name)]] [[kernel]] decltype(linear_wide_twice<T>) linear_wide_twice<T>; \
  template [[host_name("linear_wide_inputs_" #name)]] [[kernel]] decltype(linear_wide_inputs<T>) linear_wide_inputs<T>;
WIDE_KERNELS(half, half)
#if INGOT_BFLOAT
WIDE_KERNELS(bfloat, bfloat)
#endif

#endif
