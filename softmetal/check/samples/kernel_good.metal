#include <metal_stdlib>
using namespace metal;

constant uint WIDTH [[function_constant(0)]];
constant float SCALES[4] = {1, 2, 4, 8};

struct Shape {
  uint rows, columns;
  float4 bias;
};
struct block_q8 {
  half d;
  char q[32];
};

template <typename T>
inline float dequantize(device const block_q8& b, uint i) {
  return float(b.d) * float(T(b.q[i]));
}

template <typename T>
kernel void good(device T* out [[buffer(0)]], device const block_q8* in [[buffer(1)]], constant Shape& shape [[buffer(2)]],
                 threadgroup float* scratch [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float4 tile[32];
  thread float4 local = shape.bias + SCALES[lane & 3];
  local.xy += shape.bias.zw;
  local = i > 3 ? shape.bias : local;
  tile[lane] = local * float(WIDTH);
  scratch[lane] = dequantize<T>(in[i / 32], i % 32);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  block_q8 copy = in[0];
  Shape own = shape;
  device const uint* raw = (device const uint*)in;
  float sum = simd_sum(scratch[31 - lane] + tile[lane].x + float(copy.d) + float(raw[0]));
  if (i < own.rows) out[i] = T(sum);
}
template [[host_name("good_half")]] kernel void good<half>(device half*, device const block_q8*, constant Shape&,
                                                           threadgroup float*, uint, uint);
template [[host_name("good_float")]] kernel void good<float>(device float*, device const block_q8*, constant Shape&,
                                                             threadgroup float*, uint, uint);
