// What goes with a product of matrices that a library computes, slice by slice: both operands in plain rows before it,
// their columns in the order of linear_params.h, and what becomes of the sums behind it.
#include "linear_params.h"

// Where run `chunk` of a unit begins, among the rows of the library.
METAL_FUNC uint gemm_place(uint unit, uint chunk) { return unit / 4 * linear_step_columns(LINEAR_FORMAT) + chunk * 32; }
template <typename T>
METAL_FUNC void gemm_put(device T* to, LinearEight<T> e, uint run) {
  PACKED_UNROLL for (uint i = 0; i < 4; ++i) * (device vec<T, 2>*)(to + matrix_place(run, i)) = e.at[i];
}

// out [rows, whole blocks] = rows of W from first_row on. A simdgroup takes 8 rows by 4 units.
template <typename T>
[[kernel]] void gemm_weights(device const uchar* w [[buffer(0)]], device T* out [[buffer(1)]],
                             constant GemmUnpackParams& p [[buffer(2)]],
                             uint2 group [[threadgroup_position_in_grid]],  // units, 8 rows
                             uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint columns = packed_unit_columns(LINEAR_FORMAT);
  const uint padded = linear_blocks(LINEAR_FORMAT, p.cols) * linear_block_columns(LINEAR_FORMAT);
  const uint row = group.y * 8 + lane / 4, unit = (group.x * simdgroups + simdgroup) * 4 + lane % 4;
  if (row >= p.rows || unit * columns >= padded) return;
  const LinearUnit<T> u =
      linear_load_unit<T>(LINEAR_FORMAT, packed_row(w, p.planes, p.first_row + row), unit, unit * columns < p.cols);
  PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) gemm_put(
      out + ulong(row) * padded + gemm_place(unit, chunk), linear_decode<T>(LINEAR_FORMAT, u, chunk), unit % 4);
}

// The same of rows of x.
template <typename T>
[[kernel]] void gemm_inputs(device const uchar* x [[buffer(0)]], device T* out [[buffer(1)]],
                            constant GemmUnpackParams& p [[buffer(2)]], uint2 group [[threadgroup_position_in_grid]],
                            uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint columns = packed_unit_columns(LINEAR_FORMAT);
  const uint padded = linear_blocks(LINEAR_FORMAT, p.cols) * linear_block_columns(LINEAR_FORMAT);
  const uint row = group.y * 8 + lane / 4, unit = (group.x * simdgroups + simdgroup) * 4 + lane % 4;
  if (row >= p.rows || unit * columns >= padded) return;
  PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk)
      gemm_put(out + ulong(row) * padded + gemm_place(unit, chunk),
               linear_x8<T>(x, 0, p.cols, p.x_stride, p.first_row + row, unit * columns + chunk * 8), unit % 4);
}

// out = activation(sums + bias), times the sums of the second matrix when gated; or out += that.
template <typename T>
[[kernel]] void gemm_finish(device const float* sums [[buffer(0)]],  // [rows, width]: outputs of W, then of the second
                            device const float* bias [[buffer(1)]], device const float* bias_up [[buffer(2)]],
                            device uchar* out [[buffer(3)]], constant GemmFinishParams& p [[buffer(4)]],
                            uint2 index [[thread_position_in_grid]]) {  // output, row
  if (index.x >= p.outputs || index.y >= p.rows) return;
  device const float* from = sums + ulong(index.y) * p.width + index.x;
  const float up = LINEAR_GATED ? from[p.width / 2] : 0.0f;
  linear_finish(p.out, bias, bias_up, out, index.y, index.x, linear_unboost<T>(LINEAR_FORMAT, from[0]),
                linear_unboost<T>(LINEAR_FORMAT_UP, up));
}

template [[host_name("gemm_weights_f16")]] [[kernel]] decltype(gemm_weights<half>) gemm_weights<half>;
template [[host_name("gemm_inputs_f16")]] [[kernel]] decltype(gemm_inputs<half>) gemm_inputs<half>;
template [[host_name("gemm_finish")]] [[kernel]] decltype(gemm_finish<half>) gemm_finish<half>;
#if INGOT_BFLOAT
template [[host_name("gemm_weights_bf16")]] [[kernel]] decltype(gemm_weights<bfloat>) gemm_weights<bfloat>;
template [[host_name("gemm_inputs_bf16")]] [[kernel]] decltype(gemm_inputs<bfloat>) gemm_inputs<bfloat>;
#endif
