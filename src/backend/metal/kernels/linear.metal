// out = x W^T for any number of rows of x and every packed format (linear_formats.h), in three kernels:
//
// few rows  A lane group of LINEAR_LANES lanes computes LINEAR_OUTPUTS outputs for up to 16 rows: each weight is loaded
//           once for all of them, decoded in registers and multiplied in fp32. The order of additions of a dot product
//           follows from LINEAR_LANES and the unit's size, that is from its length and format alone: a row's result does
//           not depend on the number of rows.
// matrix    The same on the matrix unit (linear_slices.h), for activations of 16 bits and weights of their type or of
//           blocks: slices of the columns, cut by their number alone, are summed apart and added in order. Up to 64 rows
//           share a read of W.
// tiles     LINEAR_TILE_ROWS rows by 64 outputs through threadgroup memory and the matrix unit. A dot product is one
//           chain over the columns in order, whatever the tile.
//
// One dispatch may do two: the first `few_groups` threadgroups take rows [0, few_rows) in registers or on the matrix unit,
// the others the rest in tiles.
//
// Results are added to a bias, passed through an activation with a second matrix (gated), converted, or added to `out`.
#include "linear_slices.h"

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
  const LinearItem item = linear_item(p, items, starts, group / p.output_groups);
  if (!item.exists) return;
  const uint first_row = item.first_row, last_row = item.last_row, first_weight = item.first_weight;

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

// ---- tiles ----------------------------------------------------------------------------------------------------------

// A tile of W has 64 rows: 64 outputs, or 32 of the first matrix and the same 32 of the second.
constant constexpr uint kLinearResultStride = kLinearTileOutputs + 4;    // of the results

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
  const uint first_row = p.few_rows + group % p.row_tiles * LINEAR_TILE_ROWS;
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

// Threads: as many as must find registers on a multiprocessor at the least.
template <typename T, uint Threads>
[[kernel, max_total_threads_per_threadgroup(Threads)]] STARTS_EARLY void linear_kernel(
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
    device float* partials [[buffer(10), function_constant(LINEAR_SPLIT)]],     // see linear_shared
    threadgroup uchar* memory [[threadgroup(0)]],
    uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]]) {
  if (LINEAR_ROWS > 0 && (LINEAR_TILE_ROWS == 0 || group < p.few_groups)) {
    if (LINEAR_MATRIX > 0 && LINEAR_OUTPUTS > 1)
      linear_shared<T>(w, w_up, x, bias, bias_up, out, p, partials, memory, group, thread_index, simdgroup, lane);
    else if (LINEAR_MATRIX > 0)
      linear_matrix<T>(w, w_up, x, bias, bias_up, out, p, items, starts, order, memory, group, thread_index, simdgroup,
                       simdgroups, lane);
    else
      linear_few(w, w_up, x, bias, bias_up, out, p, items, starts, order, group, simdgroup, simdgroups, lane);
  } else if (LINEAR_TILE_ROWS > 0) {
    linear_tiles<T>(w, w_up, x, bias, bias_up, out, p, memory, group - p.few_groups, thread_index, simdgroup);
  }
}

template [[host_name("linear_half")]] [[kernel]] decltype(linear_kernel<half, 256>) linear_kernel<half, 256>;
template [[host_name("linear_half_512")]] [[kernel]] decltype(linear_kernel<half, 512>) linear_kernel<half, 512>;
template [[host_name("linear_half_768")]] [[kernel]] decltype(linear_kernel<half, 768>) linear_kernel<half, 768>;
template [[host_name("linear_float")]] [[kernel]] decltype(linear_kernel<float, 256>) linear_kernel<float, 256>;
#if INGOT_BFLOAT
template [[host_name("linear_bfloat")]] [[kernel]] decltype(linear_kernel<bfloat, 256>) linear_kernel<bfloat, 256>;
template [[host_name("linear_bfloat_512")]] [[kernel]] decltype(linear_kernel<bfloat, 512>) linear_kernel<bfloat, 512>;
template [[host_name("linear_bfloat_768")]] [[kernel]] decltype(linear_kernel<bfloat, 768>) linear_kernel<bfloat, 768>;
#endif

// Adds up what linear_shared left of each slice, in order: a thread has four outputs of a row.
[[kernel]] void linear_add(device const float* bias [[buffer(3), function_constant(LINEAR_HAS_BIAS)]],
                           device uchar* out [[buffer(5)]],
                           constant LinearParams& p [[buffer(6)]],
                           device const float* partials [[buffer(10)]],
                           uint2 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint padded = (p.outputs + 7) / 8 * 8;
  const uint row = group.y, output = (group.x * kLinearAddThreads + thread_index) * 4;
  if (output >= p.outputs) return;
  const ulong first = ulong(row / LINEAR_ROWS * LINEAR_LANES) * LINEAR_ROWS + row % LINEAR_ROWS;
  device const float4* from = (device const float4*)(partials + first * padded + output);
  // All loads are under way before the first is added.
  float4 parts[kLinearMostSlices];
  PACKED_UNROLL for (uint slice = 0; slice < LINEAR_LANES; ++slice)
    parts[slice] = from[ulong(slice) * LINEAR_ROWS * (padded / 4)];
  const uint count = min(p.outputs - output, 4u);
  device float* sums = (device float*)out + ulong(row) * p.out_stride + output;  // to accumulate
  float before[4];
  PACKED_UNROLL for (uint i = 0; i < 4; ++i)
    if (LINEAR_ACCUMULATE) before[i] = i < count ? sums[i] : 0.0f;
  float4 sum = parts[0];
  PACKED_UNROLL for (uint slice = 1; slice < LINEAR_LANES; ++slice) sum += parts[slice];
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) {
    if (i < count) {
      if (LINEAR_ACCUMULATE)
        sums[i] = before[i] + linear_value(bias, bias, output + i, sum[i], 0.0f);
      else
        linear_finish(p, bias, bias, out, row, output + i, sum[i], 0.0f);
    }
  }
}
