#include "linear_params.h"

constant bool NORM_LAYER [[function_constant(kNormLayer)]];  // LayerNorm; else RMSNorm
constant bool NORM_WEIGHT [[function_constant(kNormWeight)]];
constant bool NORM_BIAS [[function_constant(kNormBias)]];
constant bool NORM_ADD [[function_constant(kNormAdd)]];  // out += the result
constant bool NORM_COPY [[function_constant(kNormCopy)]];  // the result goes to `copy` too
// Of a product that left the sums of its slices to be added to `in`: how many there are, and the PackedFormat of its
// weights. The order of additions is that of linear_add, in kernels/linear.metal. No slices: `in` is as it should be.
constant uint NORM_SLICES [[function_constant(kNormSlices)]];
constant uint NORM_FORMAT [[function_constant(kNormFormat)]];
constant bool NORM_ADDS_SLICES = NORM_SLICES > 0;

#define NORM_UNROLL _Pragma("clang loop unroll(full)")
constant constexpr uint kNormKept = 2;  // vectors of four that a thread keeps in registers; rows of up to 8,192 are no longer

// Sum over the threadgroup, the same bits in every thread. `parts` holds one float a simdgroup.
static float norm_sum(float x, threadgroup float* parts, uint lane, uint simdgroup, uint simdgroups) {
  x = simd_sum(x);
  if (lane == 0) parts[simdgroup] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = simd_sum(lane < simdgroups ? parts[lane] : 0.0f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}

static float norm_square(float4 d, float squares) {
  squares = fma(d.x, d.x, squares);
  squares = fma(d.y, d.y, squares);
  squares = fma(d.z, d.z, squares);
  return fma(d.w, d.w, squares);
}
template <typename T>
static void norm_store(device vec<T, 4>* y, device float4* copy, uint i, float4 value, float4 weight, float4 bias) {
  if (NORM_WEIGHT) value = value * weight;
  if (NORM_BIAS) value = value + bias;
  if (NORM_COPY) copy[i] = value;
  y[i] = vec<T, 4>(NORM_ADD ? float4(y[i]) + value : value);
}

// Slices that wait to be added to row `row`, [tile][slice][rows of a tile][dim].
struct NormSlices {
  device const float4* first;
  uint stride;  // to the next slice

  static NormSlices of(device const float* partials, constant NormParams& p, uint row) {
    NormSlices slices = {nullptr, 0};
    if (NORM_ADDS_SLICES) {
      const ulong at = ulong(row / p.slice_rows * NORM_SLICES) * p.slice_rows + row % p.slice_rows;
      slices = {(device const float4*)(partials + at * p.dim), p.slice_rows * (p.dim / 4)};
    }
    return slices;
  }
  // All loads are under way before the first is added.
  void load(thread float4 (&parts)[kLinearMostSlices], uint i) const thread {
    NORM_UNROLL for (uint slice = 0; slice < kLinearMostSlices; ++slice)
      if (slice < NORM_SLICES) parts[slice] = first[ulong(slice) * stride + i];
  }
  float4 add(float4 before, thread const float4 (&parts)[kLinearMostSlices]) const thread {
    float4 sum = parts[0];
    NORM_UNROLL for (uint slice = 1; slice < kLinearMostSlices; ++slice)
      if (slice < NORM_SLICES) sum += parts[slice];
    NORM_UNROLL for (uint i = 0; i < 4; ++i) before[i] += linear_unboost<half>(NORM_FORMAT, sum[i]);
    return before;
  }
};

// Four elements at a time where rows begin at multiples of 16 bytes.
template <typename T>
static void norm_row(device float4* x, NormSlices slices, device const float4* weight, device const float4* bias, device vec<T, 4>* y,
                     device float4* copy, constant NormParams& p, threadgroup float* parts, uint thread_index, uint lane, uint simdgroup,
                     uint simdgroups) {
  const uint threads = simdgroups * 32, count = p.dim / 4, rest = thread_index + kNormKept * threads;
  float4 kept[kNormKept], weights[kNormKept], biases[kNormKept];
  NORM_UNROLL for (uint k = 0; k < kNormKept; ++k) {
    const uint i = thread_index + k * threads;
    kept[k] = weights[k] = biases[k] = float4(0.0f);
    if (NORM_WEIGHT && i < count) weights[k] = weight[i];
    if (NORM_BIAS && i < count) biases[k] = bias[i];
  }
  wait_for_dispatches();
  NORM_UNROLL for (uint k = 0; k < kNormKept; ++k)
    if (thread_index + k * threads < count) kept[k] = x[thread_index + k * threads];
  if (NORM_ADDS_SLICES) {
    float4 parts[kNormKept][kLinearMostSlices];
    NORM_UNROLL for (uint k = 0; k < kNormKept; ++k)
      if (thread_index + k * threads < count) slices.load(parts[k], thread_index + k * threads);
    NORM_UNROLL for (uint k = 0; k < kNormKept; ++k)
      if (thread_index + k * threads < count)
        x[thread_index + k * threads] = kept[k] = slices.add(kept[k], parts[k]);
    for (uint i = rest; i < count; i += threads) {
      slices.load(parts[0], i);
      x[i] = slices.add(x[i], parts[0]);
    }
  }

  float mean = 0;
  if (NORM_LAYER) {
    float sum = 0;
    NORM_UNROLL for (uint k = 0; k < kNormKept; ++k) sum += (kept[k].x + kept[k].y) + (kept[k].z + kept[k].w);
    for (uint i = rest; i < count; i += threads) sum += (x[i].x + x[i].y) + (x[i].z + x[i].w);
    mean = norm_sum(sum, parts, lane, simdgroup, simdgroups) / float(p.dim);
  }
  float squares = 0;
  NORM_UNROLL for (uint k = 0; k < kNormKept; ++k)
    if (thread_index + k * threads < count) squares = norm_square(kept[k] - mean, squares);
  for (uint i = rest; i < count; i += threads) squares = norm_square(x[i] - mean, squares);
  const float scale = precise::rsqrt(norm_sum(squares, parts, lane, simdgroup, simdgroups) / float(p.dim) + p.eps);

  NORM_UNROLL for (uint k = 0; k < kNormKept; ++k) {
    const uint i = thread_index + k * threads;
    if (i < count) norm_store<T>(y, copy, i, (kept[k] - mean) * scale, weights[k], biases[k]);
  }
  for (uint i = rest; i < count; i += threads)
    norm_store<T>(y, copy, i, (x[i] - mean) * scale, NORM_WEIGHT ? weight[i] : float4(0.0f),
                  NORM_BIAS ? bias[i] : float4(0.0f));
}

// One row a threadgroup: the residual stream in, an activation out (or the residual stream, to add to).
template <typename T>
[[kernel]] STARTS_EARLY void norm(device float* in [[buffer(0)]],  // [rows, dim]
                     device const float* weight [[buffer(1), function_constant(NORM_WEIGHT)]],
                     device const float* bias [[buffer(2), function_constant(NORM_BIAS)]],
                     device T* out [[buffer(3)]],  // [rows, width]
                     constant NormParams& p [[buffer(4)]],
                     device float* copies [[buffer(5), function_constant(NORM_COPY)]],  // [rows, dim]
                     device const float* partials [[buffer(6), function_constant(NORM_ADDS_SLICES)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint thread_index [[thread_index_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                     uint simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float parts[32];
  const uint threads = simdgroups * 32;
  device float* x = in + ulong(row) * p.dim;
  device T* y = out + ulong(row) * p.width;
  device float* copy = NORM_COPY ? copies + ulong(row) * p.dim : nullptr;
  if (p.dim % 4 == 0 && p.width % 4 == 0) {
    norm_row<T>((device float4*)x, NormSlices::of(partials, p, row), (device const float4*)weight, (device const float4*)bias,
                (device vec<T, 4>*)y, (device float4*)copy, p, parts, thread_index, lane, simdgroup, simdgroups);
    return;
  }
  wait_for_dispatches();
  float mean = 0;
  if (NORM_LAYER) {
    float sum = 0;
    for (uint i = thread_index; i < p.dim; i += threads) sum += x[i];
    mean = norm_sum(sum, parts, lane, simdgroup, simdgroups) / float(p.dim);
  }
  float squares = 0;
  for (uint i = thread_index; i < p.dim; i += threads) {
    const float d = x[i] - mean;
    squares = fma(d, d, squares);
  }
  const float scale = precise::rsqrt(norm_sum(squares, parts, lane, simdgroup, simdgroups) / float(p.dim) + p.eps);
  for (uint i = thread_index; i < p.dim; i += threads) {
    float value = (x[i] - mean) * scale;
    if (NORM_WEIGHT) value *= weight[i];
    if (NORM_BIAS) value += bias[i];
    if (NORM_COPY) copy[i] = value;
    y[i] = T(NORM_ADD ? float(y[i]) + value : value);
  }
}

template [[host_name("norm_f32")]] [[kernel]] decltype(norm<float>) norm<float>;
template [[host_name("norm_f16")]] [[kernel]] decltype(norm<half>) norm<half>;
#if INGOT_BFLOAT
template [[host_name("norm_bf16")]] [[kernel]] decltype(norm<bfloat>) norm<bfloat>;
#endif
