// out = x W^T for any number of rows of x and every packed format (linear_formats.h), on the matrix unit, in one order
// of summation (linear_params.h) and two ways:
//
// few rows  Up to 64 rows share a read of W, slices of whose columns are summed side by side (linear_slices.h), or
//           one after another by simdgroups that share x (there, and linear_slices_shared.h).
// tiles     More rows, through threadgroup memory, one slice after another (linear_tiles.h).
//
// Results are added to a bias, passed through an activation with a second matrix (gated), converted, or added to `out`.
#include "linear_slices.h"
#include "linear_slices_shared.h"
#include "linear_tiles.h"

// Threads: as many as must find registers on a multiprocessor at the least. T: what is multiplied.
template <typename T, uint Threads>
[[kernel, max_total_threads_per_threadgroup(Threads)]] STARTS_EARLY void linear_few(
    device const uchar* w [[buffer(0)]], device const uchar* w_up [[buffer(1), function_constant(LINEAR_GATED)]],
    device const uchar* x [[buffer(2)]], device const float* bias [[buffer(3)]],
    device const float* bias_up [[buffer(4), function_constant(LINEAR_GATED)]], device uchar* out [[buffer(5)]],
    constant LinearParams& p [[buffer(6)]],
    device const int* items [[buffer(7), function_constant(LINEAR_EXPERTS)]],   // count, then [expert, first row]
    device const int* starts [[buffer(8), function_constant(LINEAR_EXPERTS)]],  // [experts + 1]
    device const int* order [[buffer(9), function_constant(LINEAR_EXPERTS)]],   // [rows of out]
    device float* partials [[buffer(10), function_constant(LINEAR_SPLIT)]],     // see linear_shared
    constant LinearColumns* cuts [[buffer(11), function_constant(LINEAR_CUT)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint simdgroups [[simdgroups_per_threadgroup]]) {
  if (LINEAR_SHARED > 0 && LINEAR_BLOCKS)
    linear_shared_blocks(w, w_up, x, bias, bias_up, out, p, partials, memory, group, thread_index, simdgroup, lane);
  else if (LINEAR_SHARED > 0)
    linear_shared<T>(w, w_up, x, bias, bias_up, out, p, partials, memory, group, thread_index, simdgroup, lane);
  else
    linear_matrix<T>(w, w_up, x, bias, bias_up, out, p, cuts, items, starts, order, memory, group, thread_index,
                     simdgroup, simdgroups, lane);
}

template <typename T>
[[kernel, max_total_threads_per_threadgroup(256)]] STARTS_EARLY void linear_many(
    device const uchar* w [[buffer(0)]], device const uchar* w_up [[buffer(1), function_constant(LINEAR_GATED)]],
    device const uchar* x [[buffer(2)]], device const float* bias [[buffer(3)]],
    device const float* bias_up [[buffer(4), function_constant(LINEAR_GATED)]], device uchar* out [[buffer(5)]],
    constant LinearParams& p [[buffer(6)]],
    device const int* items [[buffer(7), function_constant(LINEAR_EXPERTS)]],   // as of linear_few
    device const int* starts [[buffer(8), function_constant(LINEAR_EXPERTS)]],
    device const int* order [[buffer(9), function_constant(LINEAR_EXPERTS)]],
    device float2* waiting [[buffer(10), function_constant(LINEAR_CUT)]],  // see linear_tiles
    constant LinearColumns* cuts [[buffer(11), function_constant(LINEAR_CUT)]],
    threadgroup uchar* memory [[threadgroup(0)]], uint group [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  wait_for_dispatches();
  linear_tiles<T>(w, w_up, x, bias, bias_up, out, p, cuts, items, starts, order, waiting, memory, group, thread_index,
                  simdgroup);
}

template [[host_name("linear_few_half")]] [[kernel]] decltype(linear_few<half, 256>) linear_few<half, 256>;
template [[host_name("linear_few_half_512")]] [[kernel]] decltype(linear_few<half, 512>) linear_few<half, 512>;
template [[host_name("linear_few_half_640")]] [[kernel]] decltype(linear_few<half, 640>) linear_few<half, 640>;
template [[host_name("linear_few_half_768")]] [[kernel]] decltype(linear_few<half, 768>) linear_few<half, 768>;
template [[host_name("linear_few_float")]] [[kernel]] decltype(linear_few<float, 256>) linear_few<float, 256>;
template [[host_name("linear_many_half")]] [[kernel]] decltype(linear_many<half>) linear_many<half>;
template [[host_name("linear_many_float")]] [[kernel]] decltype(linear_many<float>) linear_many<float>;
#if INGOT_BFLOAT
template [[host_name("linear_few_bfloat")]] [[kernel]] decltype(linear_few<bfloat, 256>) linear_few<bfloat, 256>;
template [[host_name("linear_few_bfloat_512")]] [[kernel]] decltype(linear_few<bfloat, 512>) linear_few<bfloat, 512>;
template [[host_name("linear_few_bfloat_640")]] [[kernel]] decltype(linear_few<bfloat, 640>) linear_few<bfloat, 640>;
template [[host_name("linear_few_bfloat_768")]] [[kernel]] decltype(linear_few<bfloat, 768>) linear_few<bfloat, 768>;
template [[host_name("linear_many_bfloat")]] [[kernel]] decltype(linear_many<bfloat>) linear_many<bfloat>;
#endif

// Adds up what linear_shared left of each slice, in order: a thread has four outputs of a row.
[[kernel]] STARTS_EARLY void linear_add(device const float* bias [[buffer(3)]], device uchar* out [[buffer(5)]],
                                        constant LinearParams& p [[buffer(6)]],
                                        device const float* partials [[buffer(10)]],
                                        uint2 group [[threadgroup_position_in_grid]],
                                        uint thread_index [[thread_index_in_threadgroup]]) {
  wait_for_dispatches();
  const uint padded = (p.outputs + 7) / 8 * 8;
  const uint row = group.y, output = (group.x * kLinearAddThreads + thread_index) * 4;
  if (output >= p.outputs) return;
  const ulong first = ulong(row / LINEAR_ROWS * LINEAR_SLICES) * LINEAR_ROWS + row % LINEAR_ROWS;
  device const float4* from = (device const float4*)(partials + first * padded + output);
  // All loads are under way before the first is added.
  float4 parts[kLinearMostSlices], before = float4(0.0f);
  PACKED_UNROLL for (uint slice = 0; slice < LINEAR_SLICES; ++slice) parts[slice] =
      from[ulong(slice) * LINEAR_ROWS * (padded / 4)];
  const uint count = min(p.outputs - output, 4u);
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) if (i < count) before[i] = linear_before(p.out, out, row, output + i);
  float4 sum = parts[0];
  PACKED_UNROLL for (uint slice = 1; slice < LINEAR_SLICES; ++slice) sum += parts[slice];
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) if (i < count)
      linear_finish(p.out, before[i], bias, bias, out, row, output + i, linear_unboost<half>(LINEAR_FORMAT, sum[i]),
                    0.0f);
}
