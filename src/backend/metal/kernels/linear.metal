// out = x W^T for any number of rows of x and every packed format (linear_formats.h), in three ways:
//
// few rows  A lane group of LINEAR_LANES lanes computes LINEAR_OUTPUTS outputs for up to 16 rows: each weight is loaded
//           once for all of them, decoded in registers and multiplied in fp32. The order of additions of a dot product
//           follows from LINEAR_LANES and the unit's size, that is from its length and format alone: a row's result does
//           not depend on the number of rows.
// matrix    The same on the matrix unit, for 16-bit weights and activations of one type: eight slices of the columns, cut
//           by their number alone, are summed apart and added as a tree. Up to 64 rows share a read of W.
// tiles     LINEAR_TILE_ROWS rows by 64 outputs through threadgroup memory and the matrix unit. A dot product is one
//           chain over the columns in order, whatever the tile.
//
// One dispatch may do two: the first `small_groups` threadgroups take rows [0, small_rows) in one of the first two ways,
// the others the rest in tiles.
//
// Results are added to a bias, passed through an activation with a second matrix (gated), converted, or added to `out`.

constant uint LINEAR_FORMAT [[function_constant(20)]];       // PackedFormat of W
constant uint LINEAR_FORMAT_UP [[function_constant(21)]];    // of the second matrix, when gated
// Few rows: at a time; 1, 2, 4, 8 or 16. Matrix: 8, 16, 32 or 64. 0: none, tiles only.
constant uint LINEAR_ROWS [[function_constant(22)]];
constant uint LINEAR_OUTPUTS [[function_constant(23)]];      // few rows: outputs of a lane group; 1, 2 or 4
constant uint LINEAR_LANES [[function_constant(24)]];        // few rows: lanes that share a dot product; 1 to 32
constant uint LINEAR_UNROLL [[function_constant(25)]];       // units (matrix: 32 columns) loaded together; 1 to 4
constant uint LINEAR_TILE_ROWS [[function_constant(26)]];    // tiles: 32 or 64; 0: none, few rows only
constant uint LINEAR_ACTIVATION [[function_constant(27)]];   // 0 none, 1 silu, 2 gelu_tanh, 3 gelu, gated; 4 to 6 not
constant uint LINEAR_X [[function_constant(28)]];            // PackedFormat of the activations: f32, f16 or bf16
constant uint LINEAR_OUT [[function_constant(29)]];          // of the output
constant uint LINEAR_MATRIX [[function_constant(30)]];       // matrix: 8 outputs times this a threadgroup; 0: few rows
constant bool LINEAR_ACCUMULATE [[function_constant(31)]];   // out += result
constant bool LINEAR_HAS_BIAS [[function_constant(32)]];
constant bool LINEAR_HAS_BIAS_UP [[function_constant(33)]];
constant bool LINEAR_ALIGNED [[function_constant(34)]];      // cols % 8 == 0: rows of x can be read 16 bytes at a time
constant bool LINEAR_EXPERTS [[function_constant(35)]];      // few rows: W is a stack of experts, see LinearParams

constant bool LINEAR_GATED = LINEAR_ACTIVATION >= 1 && LINEAR_ACTIVATION <= 3;

// Everything a dispatch needs beside its buffers.
struct LinearParams {
  PackedPlanes planes;     // of W
  PackedPlanes planes_up;  // of the second matrix
  uint rows;               // of x
  uint cols;
  uint outputs;            // of this dispatch
  uint out_stride;         // elements from row to row of `out`
  uint small_rows;         // rows taken in the first way
  uint small_groups;       // threadgroups of the first way: output groups times row groups
  uint output_groups;      // few rows: threadgroups that cover the outputs once
  uint row_tiles;          // tiles: tiles that cover the rows
  // Experts: a row group is an item, [expert, first row], of the list that routing made; its rows of `out` follow each
  // other. Row i of `out` takes row i of x, or row order[i] / per_token when per_token is not 0.
  uint per_token;
};

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

METAL_FUNC void linear_store(device uchar* out, ulong i, float value) {
  if (LINEAR_OUT == packed_f32) {
    device float* to = (device float*)out + i;
    *to = LINEAR_ACCUMULATE ? *to + value : value;
  } else if (LINEAR_OUT == packed_f16) {
    ((device half*)out)[i] = half(value);
  } else {  // to nearest, ties to even; a NaN stays one
    const uint bits = as_type<uint>(value);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    ((device ushort*)out)[i] = ushort(nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
}

// erf to 1.5e-7 (Abramowitz and Stegun 7.1.26); Metal has none.
METAL_FUNC float linear_erf(float x) {
  const float a = fabs(x);
  const float t = 1.0f / fma(0.3275911f, a, 1.0f);
  float p = fma(1.061405429f, t, -1.453152027f);
  p = fma(p, t, 1.421413741f);
  p = fma(p, t, -0.284496736f);
  p = fma(p, t, 0.254829592f);
  const float y = 1.0f - p * t * precise::exp(-a * a);
  return x < 0.0f ? -y : y;
}

// The exponents are held where nothing overflows: infinities are not to be relied on under fast math.
METAL_FUNC float linear_activation(float x) {
  const uint kind = LINEAR_GATED ? LINEAR_ACTIVATION : LINEAR_ACTIVATION - 3;
  if (kind == 1) return x / (1.0f + precise::exp(min(-x, 80.0f)));
  if (kind == 2) {
    const float u = 0.79788456080286535588f * fma(0.044715f * x * x, x, x);
    return x - x / (1.0f + precise::exp(min(2.0f * u, 80.0f)));
  }
  return 0.5f * x * (1.0f + linear_erf(x * 0.70710678118654752440f));
}

METAL_FUNC void linear_finish(constant LinearParams& p, device const float* bias, device const float* bias_up,
                              device uchar* out, uint row, uint output, float value, float up) {
  if (LINEAR_HAS_BIAS) value += bias[output];
  if (LINEAR_GATED) {
    if (LINEAR_HAS_BIAS_UP) up += bias_up[output];
    value = linear_activation(value) * up;
  } else if (LINEAR_ACTIVATION != 0) {
    value = linear_activation(value);
  }
  linear_store(out, ulong(row) * p.out_stride + output, value);
}

// ---- few rows -------------------------------------------------------------------------------------------------------

METAL_FUNC float linear_dot8(Float8 w, Float8 x, float sum) {
  sum = fma(w.low.x, x.low.x, sum);
  sum = fma(w.low.y, x.low.y, sum);
  sum = fma(w.low.z, x.low.z, sum);
  sum = fma(w.low.w, x.low.w, sum);
  sum = fma(w.high.x, x.high.x, sum);
  sum = fma(w.high.y, x.high.y, sum);
  sum = fma(w.high.z, x.high.z, sum);
  return fma(w.high.w, x.high.w, sum);
}

// Which row of x row `row` of `out` takes. Rows past the last repeat it and are not stored.
METAL_FUNC uint linear_x_row(constant LinearParams& p, device const int* order, uint row, uint last_row) {
  const uint at = min(row, last_row);
  return LINEAR_EXPERTS && p.per_token > 0 ? uint(order[at]) / p.per_token : at;
}

// sums[r * LINEAR_ROWS + b] += this lane's share of output r, row b, for `count` rows of W (at most 4).
METAL_FUNC void linear_accumulate(uint format, thread const PackedRow* w, uint count, device const uchar* x,
                                  constant LinearParams& p, device const int* order, uint first_row, uint last_row,
                                  uint slice, thread float* sums) {
  const uint columns = packed_unit_columns(format);
  const uint units = (p.cols + columns - 1) / columns;
  for (uint unit = slice; unit < units; unit += LINEAR_LANES * LINEAR_UNROLL) {
    PackedUnit loaded[4][4];
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || unit + u * LINEAR_LANES < units) {
        PACKED_UNROLL for (uint r = 0; r < count; ++r) loaded[u][r] = packed_load(format, w[r], unit + u * LINEAR_LANES);
      }
    }
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || unit + u * LINEAR_LANES < units) {
        PackedScales scales[4];
        PACKED_UNROLL for (uint r = 0; r < count; ++r) scales[r] = packed_scales(format, loaded[u][r]);
        PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) {
          Float8 weights[4];
          PACKED_UNROLL for (uint r = 0; r < count; ++r)
            weights[r] = packed_decode(format, loaded[u][r], scales[r], chunk);
          const uint col = (unit + u * LINEAR_LANES) * columns + chunk * 8;
          PACKED_UNROLL for (uint b = 0; b < LINEAR_ROWS; ++b) {
            const Float8 v = linear_x8(x, p.cols, linear_x_row(p, order, first_row + b, last_row), col);
            PACKED_UNROLL for (uint r = 0; r < count; ++r)
              sums[r * LINEAR_ROWS + b] = linear_dot8(weights[r], v, sums[r * LINEAR_ROWS + b]);
          }
        }
      }
    }
  }
}

// Adds up `count` values (a power of two, at most 64) over the lanes of a group, each by the same tree. Halving both
// the lanes and the values at every step, it takes about one exchange a value. Value first + i is left in values[i] for
// i < max(1, count / LINEAR_LANES); returns first, or count for a lane whose value another lane has too.
METAL_FUNC uint linear_reduce(thread float* values, uint count, uint lane) {
  uint first = 0;
  PACKED_UNROLL for (uint step = 0; step < 5; ++step) {
    const uint distance = LINEAR_LANES >> (step + 1), left = count >> (step + 1);
    if (distance > 0) {
      const bool upper = (lane & distance) != 0;
      if (left > 0) {
        PACKED_UNROLL for (uint i = 0; i < 32; ++i) {
          if (i < left) {
            // Both are read before the choice: an array indexed by it would leave the registers.
            const float a = values[i], b = values[i + left];
            values[i] = (upper ? b : a) + simd_shuffle_xor(upper ? a : b, ushort(distance));
          }
        }
        if (upper) first += left;
      } else {
        values[0] += simd_shuffle_xor(values[0], ushort(distance));
        if (upper) first = count;
      }
    }
  }
  return first;
}

METAL_FUNC void linear_few(device const uchar* w, device const uchar* w_up, device const uchar* x,
                           device const float* bias, device const float* bias_up, device uchar* out,
                           constant LinearParams& p, device const int* items, device const int* starts,
                           device const int* order, uint group, uint simdgroup, uint simdgroups, uint lane) {
  wait_for_dispatches();
  const uint slice = lane % LINEAR_LANES;
  const uint team = (group % p.output_groups * simdgroups + simdgroup) * (32 / LINEAR_LANES) + lane / LINEAR_LANES;
  const uint first_output = team * LINEAR_OUTPUTS;
  uint first_row = group / p.output_groups * LINEAR_ROWS, last_row = p.small_rows - 1, first_weight = 0;
  if (LINEAR_EXPERTS) {
    const uint item = group / p.output_groups;
    if (item >= uint(items[0])) return;
    const uint expert = uint(items[1 + 2 * item]);
    first_row = uint(items[2 + 2 * item]);
    last_row = uint(starts[expert + 1]) - 1;
    first_weight = expert * p.outputs;
  }

  // Outputs past the last repeat it and are not stored.
  PackedRow rows[4];
  PACKED_UNROLL for (uint r = 0; r < LINEAR_OUTPUTS; ++r)
    rows[r] = packed_row(w, p.planes, first_weight + min(first_output + r, p.outputs - 1));
  float sums[64], ups[64];
  PACKED_UNROLL for (uint i = 0; i < LINEAR_OUTPUTS * LINEAR_ROWS; ++i) sums[i] = ups[i] = 0.0f;
  if (!LINEAR_GATED) {
    linear_accumulate(LINEAR_FORMAT, rows, LINEAR_OUTPUTS, x, p, order, first_row, last_row, slice, sums);
  } else if (LINEAR_FORMAT == LINEAR_FORMAT_UP && LINEAR_OUTPUTS <= 2) {
    // Both matrices in one pass over x.
    float both[64];
    PACKED_UNROLL for (uint i = 0; i < 2 * LINEAR_OUTPUTS * LINEAR_ROWS; ++i) both[i] = 0.0f;
    PACKED_UNROLL for (uint r = 0; r < LINEAR_OUTPUTS; ++r)
      rows[LINEAR_OUTPUTS + r] = packed_row(w_up, p.planes_up, first_weight + min(first_output + r, p.outputs - 1));
    linear_accumulate(LINEAR_FORMAT, rows, 2 * LINEAR_OUTPUTS, x, p, order, first_row, last_row, slice, both);
    PACKED_UNROLL for (uint i = 0; i < LINEAR_OUTPUTS * LINEAR_ROWS; ++i) {
      sums[i] = both[i];
      ups[i] = both[LINEAR_OUTPUTS * LINEAR_ROWS + i];
    }
  } else {
    linear_accumulate(LINEAR_FORMAT, rows, LINEAR_OUTPUTS, x, p, order, first_row, last_row, slice, sums);
    PACKED_UNROLL for (uint r = 0; r < LINEAR_OUTPUTS; ++r)
      rows[r] = packed_row(w_up, p.planes_up, first_weight + min(first_output + r, p.outputs - 1));
    linear_accumulate(LINEAR_FORMAT_UP, rows, LINEAR_OUTPUTS, x, p, order, first_row, last_row, slice, ups);
  }

  const uint count = LINEAR_OUTPUTS * LINEAR_ROWS;
  const uint first = linear_reduce(sums, count, lane);
  if (LINEAR_GATED) linear_reduce(ups, count, lane);
  const uint kept = count > LINEAR_LANES ? count / LINEAR_LANES : 1;
  PACKED_UNROLL for (uint i = 0; i < kept; ++i) {
    const uint row = first_row + (first + i) % LINEAR_ROWS, output = first_output + (first + i) / LINEAR_ROWS;
    if (first < count && row <= last_row && output < p.outputs)
      linear_finish(p, bias, bias_up, out, row, output, sums[i], ups[i]);
  }
}

// ---- matrix ---------------------------------------------------------------------------------------------------------

constant constexpr uint kLinearSlices = 8;

// Adds up the slices of 8 * LINEAR_MATRIX outputs by 8 * round rows, neighbours first, and stores the results.
METAL_FUNC void linear_add_slices(constant LinearParams& p, device const float* bias, device const float* bias_up,
                                  device uchar* out, threadgroup const float* results, uint first_output,
                                  uint first_row, uint thread_index, uint threads, uint eights, uint round) {
  const uint outputs = 8 * LINEAR_MATRIX, stride = eights * 8 * (8 * round);
  for (uint at = thread_index; at < outputs * 8 * round; at += threads) {
    const uint o = at % outputs, r = at / outputs;
    if (first_row + r >= p.small_rows || first_output + o >= p.outputs) continue;
    threadgroup const float* from = results + o * (8 * round) + r;
    float sums[kLinearSlices], ups[kLinearSlices];
    PACKED_UNROLL for (uint slice = 0; slice < kLinearSlices; ++slice) {
      sums[slice] = from[slice * stride];
      ups[slice] = LINEAR_GATED ? from[slice * stride + outputs * (8 * round)] : 0.0f;
    }
    PACKED_UNROLL for (uint distance = 1; distance < kLinearSlices; distance *= 2) {
      PACKED_UNROLL for (uint slice = 0; slice < kLinearSlices; slice += 2 * distance) {
        sums[slice] += sums[slice + distance];
        ups[slice] += ups[slice + distance];
      }
    }
    linear_finish(p, bias, bias_up, out, first_row + r, first_output + o, sums[0], ups[0]);
  }
}

// Panels of W that a threadgroup takes.
template <typename T>
struct LinearPanels {
  device const T* at[8];
};

template <typename T>
METAL_FUNC void linear_load_panels(thread simdgroup_matrix<T, 8, 8> (&a)[4][8][4], thread const LinearPanels<T>& panels,
                                   uint eights, uint step, uint last, threadgroup T* part, uint lane) {
  PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
    if (step + u < last) {
      PACKED_UNROLL for (uint i = 0; i < eights; ++i)
        matrix_load_wide(a[u][i], panels.at[i] + (step + u) * 256, 32, false, 8, part, lane);
    }
  }
}

// sums = columns [32 * first, 32 * last) of the panels times those of x. The first weights are loaded before the
// dispatch that makes x has ended.
template <typename T>
METAL_FUNC void linear_slice(thread simdgroup_float8x8 (&sums)[8][8], thread const LinearPanels<T>& panels, uint eights,
                             device const T* x, constant LinearParams& p, uint first_row, uint first, uint last,
                             bool waits, threadgroup T* part, uint lane) {
  const uint tiles = LINEAR_ROWS / 8;
  PACKED_UNROLL for (uint i = 0; i < eights; ++i)
    PACKED_UNROLL for (uint g = 0; g < tiles; ++g) sums[i][g] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_matrix<T, 8, 8> a[4][8][4];
  linear_load_panels(a, panels, eights, first, last, part, lane);
  if (waits) wait_for_dispatches();
  device const T* inputs[8];
  uint counts[8];
  PACKED_UNROLL for (uint g = 0; g < tiles; ++g) {
    const uint row = first_row + g * 8;
    counts[g] = row < p.small_rows ? min(p.small_rows - row, 8u) : 0;
    inputs[g] = x + ulong(min(row, p.small_rows - 1)) * p.cols;
  }
  // Short turns load the next weights before they are done; long ones have enough in flight, and spare the registers.
  const bool at_end = LINEAR_ROWS == 8 && LINEAR_UNROLL <= 2;
  for (uint step = first; step < last; step += LINEAR_UNROLL) {
    if (!at_end && step != first) linear_load_panels(a, panels, eights, step, last, part, lane);
    simdgroup_matrix<T, 8, 8> b[4][8][4];
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || step + u < last) {
        PACKED_UNROLL for (uint g = 0; g < tiles; ++g)
          matrix_load_wide(b[u][g], inputs[g] + (step + u) * 32, p.cols, true, counts[g], part, lane);
      }
    }
    simdgroup_barrier(mem_flags::mem_none);  // all loads are issued before the first use
    PACKED_UNROLL for (uint u = 0; u < LINEAR_UNROLL; ++u) {
      if (u == 0 || step + u < last) {
        PACKED_UNROLL for (uint k = 0; k < 4; k += 2)
          PACKED_UNROLL for (uint i = 0; i < eights; i += 2)
            PACKED_UNROLL for (uint g = 0; g < tiles; ++g) {
              if (i + 1 < eights)
                matrix_multiply_wide(sums[i][g], sums[i + 1][g], a[u][i][k], a[u][i][k + 1], a[u][i + 1][k],
                                     a[u][i + 1][k + 1], b[u][g][k], b[u][g][k + 1]);
              else
                matrix_multiply_deep(sums[i][g], a[u][i][k], a[u][i][k + 1], b[u][g][k], b[u][g][k + 1]);
            }
      }
    }
    if (at_end) linear_load_panels(a, panels, eights, step + LINEAR_UNROLL, last, part, lane);
  }
}

// Simdgroups of the threadgroup take slices of the columns. With fewer simdgroups than slices LINEAR_ROWS is at most 16.
template <typename T>
METAL_FUNC void linear_matrix(device const uchar* w, device const uchar* w_up, device const uchar* x,
                              device const float* bias, device const float* bias_up, device uchar* out,
                              constant LinearParams& p, threadgroup uchar* memory, uint group, uint thread_index,
                              uint simdgroup, uint simdgroups, uint lane) {
  const uint eights = LINEAR_GATED ? 2 * LINEAR_MATRIX : LINEAR_MATRIX;  // panels, of both matrices
  const uint tiles = LINEAR_ROWS / 8;                                    // of 8 rows of x
  const uint round = eights <= 4 ? min(tiles, 2u) : 1;                   // of them added up at a time
  const uint first_output = group % p.output_groups * (8 * LINEAR_MATRIX);
  const uint first_row = group / p.output_groups * LINEAR_ROWS;
  const uint steps = p.cols / 32, slice_steps = (steps + kLinearSlices - 1) / kLinearSlices;  // of 32 columns

  // Panels past the last repeat it and are not stored.
  LinearPanels<T> panels;
  PACKED_UNROLL for (uint i = 0; i < eights; ++i) {
    const bool is_up = LINEAR_GATED && i >= LINEAR_MATRIX;
    const uint panel = min(first_output / 8 + (is_up ? i - LINEAR_MATRIX : i), (p.outputs - 1) / 8);
    panels.at[i] = (device const T*)((is_up ? w_up : w) + ulong(panel) * p.planes.panel_bytes);
  }
  threadgroup float* results = (threadgroup float*)memory;  // [slice][output][8 * round]
  threadgroup T* part = (threadgroup T*)(results + kLinearSlices * eights * 8 * 8 * round) + simdgroup * 256;

  for (uint slice = simdgroup; slice < kLinearSlices; slice += simdgroups) {
    simdgroup_float8x8 sums[8][8];
    linear_slice<T>(sums, panels, eights, (device const T*)x, p, first_row, slice * slice_steps,
                    min((slice + 1) * slice_steps, steps), slice == simdgroup, part, lane);
    PACKED_UNROLL for (uint first = 0; first < tiles; first += round) {
      PACKED_UNROLL for (uint i = 0; i < eights; ++i)
        PACKED_UNROLL for (uint g = 0; g < round; ++g)
          simdgroup_store(sums[i][first + g], results + (slice * eights + i) * 8 * (8 * round) + g * 8, 8 * round);
      if (tiles != round) {  // every simdgroup has one slice, so all of them are here
        threadgroup_barrier(mem_flags::mem_threadgroup);
        linear_add_slices(p, bias, bias_up, out, results, first_output, first_row + first * 8, thread_index,
                          simdgroups * 32, eights, round);
        threadgroup_barrier(mem_flags::mem_threadgroup);
      }
    }
  }
  if (tiles == round) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    linear_add_slices(p, bias, bias_up, out, results, first_output, first_row, thread_index, simdgroups * 32, eights,
                      round);
  }
}

// ---- tiles ----------------------------------------------------------------------------------------------------------

// A tile of W has 64 rows: 64 outputs, or 32 of the first matrix and the same 32 of the second.
constant constexpr uint kLinearTileOutputs = 64;
constant constexpr uint kLinearTileColumns = 64;
constant constexpr uint kLinearTileStride = kLinearTileColumns + 8;      // of both operands in threadgroup memory
constant constexpr uint kLinearResultStride = kLinearTileOutputs + 4;    // of the results
constant constexpr uint kLinearTileThreads = 128;

template <typename T>
METAL_FUNC void linear_put(threadgroup T* to, Float8 v) {
  *(threadgroup vec<T, 4>*)to = vec<T, 4>(v.low);
  *(threadgroup vec<T, 4>*)(to + 4) = vec<T, 4>(v.high);
}

// Columns [col, col + 32) of one row of W as numbers.
template <typename T>
METAL_FUNC void linear_unpack(uint format, PackedRow row, uint cols, uint col, threadgroup T* to) {
  const uint columns = packed_unit_columns(format);
  PACKED_UNROLL for (uint i = 0; i < 32 / columns; ++i) {
    const uint unit = col / columns + i;
    if (unit * columns < cols) {
      const PackedUnit u = packed_load(format, row, unit);
      const PackedScales s = packed_scales(format, u);
      PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk)
        linear_put(to + i * columns + chunk * 8, packed_decode(format, u, s, chunk));
    } else {
      Float8 zero;
      zero.low = zero.high = float4(0.0f);
      PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) linear_put(to + i * columns + chunk * 8, zero);
    }
  }
}

template <typename T>
METAL_FUNC void linear_tiles(device const uchar* w, device const uchar* w_up, device const uchar* x,
                             device const float* bias, device const float* bias_up, device uchar* out,
                             constant LinearParams& p, threadgroup uchar* memory, uint group, uint thread_index,
                             uint simdgroup) {
  wait_for_dispatches();
  const uint tile_outputs = LINEAR_GATED ? kLinearTileOutputs / 2 : kLinearTileOutputs;
  const uint first_row = p.small_rows + group % p.row_tiles * LINEAR_TILE_ROWS;
  const uint first_output = group / p.row_tiles * tile_outputs;
  threadgroup T* xs = (threadgroup T*)memory;
  threadgroup T* ws = xs + LINEAR_TILE_ROWS * kLinearTileStride;

  // The four simdgroups take quarters of the tile: half of the rows by 32 rows of W.
  const uint high = LINEAR_TILE_ROWS / 16;
  const uint quarter_row = simdgroup / 2 * (LINEAR_TILE_ROWS / 2), quarter_output = simdgroup % 2 * 32;
  simdgroup_matrix<float, 8, 8> sums[4][4];
  PACKED_UNROLL for (uint i = 0; i < high; ++i)
    PACKED_UNROLL for (uint j = 0; j < 4; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

  // This thread's part of every tile of W: half of one row.
  const uint tile_row = thread_index / 2, tile_col = thread_index % 2 * 32;
  const bool is_up = LINEAR_GATED && tile_row >= tile_outputs;
  const uint output = first_output + (is_up ? tile_row - tile_outputs : tile_row);
  const bool exists = output < p.outputs;
  const uint safe_output = exists ? output : 0;
  const PackedRow row = is_up ? packed_row(w_up, p.planes_up, safe_output) : packed_row(w, p.planes, safe_output);

  for (uint col = 0; col < p.cols; col += kLinearTileColumns) {
    PACKED_UNROLL for (uint i = 0; i < LINEAR_TILE_ROWS * 8 / kLinearTileThreads; ++i) {
      const uint at = i * kLinearTileThreads + thread_index, r = at / 8, c = at % 8 * 8;
      Float8 v;
      v.low = v.high = float4(0.0f);
      if (first_row + r < p.rows && col + c < p.cols) v = linear_x8(x, p.cols, first_row + r, col + c);
      linear_put(xs + r * kLinearTileStride + c, v);
    }
    threadgroup T* to = ws + tile_row * kLinearTileStride + tile_col;
    const uint row_cols = exists ? p.cols : 0;  // rows that are not there read as zeros
    if (is_up)
      linear_unpack<T>(LINEAR_FORMAT_UP, row, row_cols, col + tile_col, to);
    else
      linear_unpack<T>(LINEAR_FORMAT, row, row_cols, col + tile_col, to);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (sizeof(T) == 4 || !kWideMatrices) {
      for (uint k = 0; k < kLinearTileColumns; k += 8) {
        simdgroup_matrix<T, 8, 8> a[4], b[4];
        PACKED_UNROLL for (uint i = 0; i < high; ++i)
          simdgroup_load(a[i], xs + (quarter_row + i * 8) * kLinearTileStride + k, kLinearTileStride);
        PACKED_UNROLL for (uint j = 0; j < 4; ++j)
          simdgroup_load(b[j], ws + (quarter_output + j * 8) * kLinearTileStride + k, kLinearTileStride, ulong2(0, 0),
                         true);
        PACKED_UNROLL for (uint i = 0; i < high; ++i)
          PACKED_UNROLL for (uint j = 0; j < 4; ++j) simdgroup_multiply_accumulate(sums[i][j], a[i], b[j], sums[i][j]);
      }
    } else {
      PACKED_UNROLL for (uint k = 0; k < kLinearTileColumns; k += 32) {
      simdgroup_matrix<T, 8, 8> a[4][4], b[4][4];
      PACKED_UNROLL for (uint i = 0; i < high; ++i)
        matrix_load_wide(a[i], xs + (quarter_row + i * 8) * kLinearTileStride + k, kLinearTileStride, false, 8, xs, 0);
      PACKED_UNROLL for (uint j = 0; j < 4; ++j)
        matrix_load_wide(b[j], ws + (quarter_output + j * 8) * kLinearTileStride + k, kLinearTileStride, true, 8, xs, 0);
      PACKED_UNROLL for (uint c = 0; c < 4; c += 2)
        PACKED_UNROLL for (uint i = 0; i < high; i += 2)
          PACKED_UNROLL for (uint j = 0; j < 4; ++j)
            matrix_multiply_wide(sums[i][j], sums[i + 1][j], a[i][c], a[i][c + 1], a[i + 1][c], a[i + 1][c + 1], b[j][c],
                                 b[j][c + 1]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }

  threadgroup float* results = (threadgroup float*)memory;
  PACKED_UNROLL for (uint i = 0; i < high; ++i)
    PACKED_UNROLL for (uint j = 0; j < 4; ++j)
      simdgroup_store(sums[i][j], results + (quarter_row + i * 8) * kLinearResultStride + quarter_output + j * 8,
                      kLinearResultStride);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint at = thread_index; at < LINEAR_TILE_ROWS * tile_outputs; at += kLinearTileThreads) {
    const uint r = at / tile_outputs, c = at % tile_outputs;
    if (first_row + r < p.rows && first_output + c < p.outputs) {
      const float up = LINEAR_GATED ? results[r * kLinearResultStride + tile_outputs + c] : 0.0f;
      linear_finish(p, bias, bias_up, out, first_row + r, first_output + c, results[r * kLinearResultStride + c], up);
    }
  }
}

// ---- the kernel, by the type of the tiles ---------------------------------------------------------------------------

template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] STARTS_EARLY void linear_kernel(
    device const uchar* w [[buffer(0)]],
    device const uchar* w_up [[buffer(1), function_constant(LINEAR_GATED)]],
    device const uchar* x [[buffer(2)]],
    device const float* bias [[buffer(3), function_constant(LINEAR_HAS_BIAS)]],
    device const float* bias_up [[buffer(4), function_constant(LINEAR_HAS_BIAS_UP)]],
    device uchar* out [[buffer(5)]],
    constant LinearParams& p [[buffer(6)]],
    device const int* items [[buffer(7), function_constant(LINEAR_EXPERTS)]],   // count, then [expert, first row]
    device const int* starts [[buffer(8), function_constant(LINEAR_EXPERTS)]],  // [experts + 1]
    device const int* order [[buffer(9), function_constant(LINEAR_EXPERTS)]],   // [rows of out]
    threadgroup uchar* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  if (LINEAR_ROWS > 0 && (LINEAR_TILE_ROWS == 0 || group < p.small_groups)) {
    if (LINEAR_MATRIX > 0)
      linear_matrix<T>(w, w_up, x, bias, bias_up, out, p, memory, group, thread_index, simdgroup, simdgroups, lane);
    else
      linear_few(w, w_up, x, bias, bias_up, out, p, items, starts, order, group, simdgroup, simdgroups, lane);
  } else if (LINEAR_TILE_ROWS > 0) {
    linear_tiles<T>(w, w_up, x, bias, bias_up, out, p, memory, group - p.small_groups, thread_index, simdgroup);
  }
}

template [[host_name("linear_half")]] [[kernel]] decltype(linear_kernel<half>) linear_kernel<half>;
template [[host_name("linear_float")]] [[kernel]] decltype(linear_kernel<float>) linear_kernel<float>;
#if INGOT_BFLOAT
template [[host_name("linear_bfloat")]] [[kernel]] decltype(linear_kernel<bfloat>) linear_kernel<bfloat>;
#endif
