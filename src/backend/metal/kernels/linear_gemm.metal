// What goes with a product of matrices that a library computes: W in plain rows before it, and what becomes of the sums
// behind it.
#include "linear_output.h"

constant uint GEMM_FORMAT [[function_constant(kGemmFormat)]];  // PackedFormat of W

METAL_FUNC uint2 gemm_bits(vec<half, 4> v) { return as_type<uint2>(v); }
#if INGOT_BFLOAT
METAL_FUNC uint2 gemm_bits(vec<bfloat, 4> v) { return as_type<uint2>(v); }
#endif

// out [rows, cols] = rows of W from first_row on. A simdgroup takes 8 rows: four lanes a row, 16 bytes of codes each.
template <typename T, uint same>
[[kernel]] void gemm_unpack(device const uchar* w [[buffer(0)]],
                            device T* out [[buffer(1)]],
                            constant GemmUnpackParams& p [[buffer(2)]],
                            uint2 group [[threadgroup_position_in_grid]],  // columns, 8 rows
                            uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]]) {
  const uint columns = packed_unit_columns(GEMM_FORMAT), units = (p.cols + columns - 1) / columns;
  const uint row = group.y * 8 + lane / 4;
  if (row >= p.rows) return;
  const PackedRow from = packed_row(w, p.planes, p.first_row + row);
  device T* to = out + ulong(row) * p.cols;
  const uint first = (group.x * simdgroups + simdgroup) * (4 * kGemmBlocks) + lane % 4;
  PackedUnit loaded[kGemmBlocks];
  PACKED_UNROLL for (uint b = 0; b < kGemmBlocks; ++b)
    if (first + b * 4 < units) loaded[b] = packed_load(GEMM_FORMAT, from, first + b * 4);
  PACKED_UNROLL for (uint b = 0; b < kGemmBlocks; ++b) {
    const uint unit = first + b * 4;
    if (unit < units) {
      if (GEMM_FORMAT == same) {
        *(device uint4*)(to + unit * 8) = loaded[b].codes;
      } else {
        const PackedScales scales = packed_scales(GEMM_FORMAT, loaded[b]);
        PACKED_UNROLL for (uint chunk = 0; chunk < columns / 8; ++chunk) {
          const Float8 v = packed_decode(GEMM_FORMAT, loaded[b], scales, chunk);
          *(device uint4*)(to + unit * columns + chunk * 8) =
              uint4(gemm_bits(vec<T, 4>(v.low)), gemm_bits(vec<T, 4>(v.high)));
        }
      }
    }
  }
}

// out = activation(sums + bias), times the sums of the second matrix when gated; or out += that.
template <typename T>
[[kernel]] void gemm_finish(device const float4* sums [[buffer(0)]],  // [rows, outputs of W, then of the second matrix]
                            device const float4* bias [[buffer(1), function_constant(LINEAR_HAS_BIAS)]],
                            device const float4* bias_up [[buffer(2), function_constant(LINEAR_HAS_BIAS_UP)]],
                            device T* out [[buffer(3)]],
                            constant GemmFinishParams& p [[buffer(4)]],
                            uint index [[thread_position_in_grid]]) {
  const uint fours = p.outputs / 4;
  const uint row = index / fours, at = index % fours;
  if (row >= p.rows) return;
  float4 value = sums[ulong(row) * (LINEAR_GATED ? 2 * fours : fours) + at];
  if (LINEAR_HAS_BIAS) value += bias[at];
  if (LINEAR_ACTIVATION != 0) {
    PACKED_UNROLL for (uint i = 0; i < 4; ++i) value[i] = linear_activation(value[i]);
  }
  if (LINEAR_GATED) {
    float4 up = sums[ulong(row) * (2 * fours) + fours + at];
    if (LINEAR_HAS_BIAS_UP) up += bias_up[at];
    value *= up;
  }
  device vec<T, 4>* to = (device vec<T, 4>*)(out + ulong(row) * p.out_stride) + at;
  *to = LINEAR_ACCUMULATE ? vec<T, 4>(float4(*to) + value) : vec<T, 4>(value);
}

template [[host_name("gemm_unpack_f16")]] [[kernel]] decltype(gemm_unpack<half, packed_f16>)
    gemm_unpack<half, packed_f16>;
template [[host_name("gemm_finish_f16")]] [[kernel]] decltype(gemm_finish<half>) gemm_finish<half>;
template [[host_name("gemm_finish_f32")]] [[kernel]] decltype(gemm_finish<float>) gemm_finish<float>;
#if INGOT_BFLOAT
template [[host_name("gemm_unpack_bf16")]] [[kernel]] decltype(gemm_unpack<bfloat, packed_bf16>)
    gemm_unpack<bfloat, packed_bf16>;
template [[host_name("gemm_finish_bf16")]] [[kernel]] decltype(gemm_finish<bfloat>) gemm_finish<bfloat>;
#endif
