// Two kernels for the report to be tried with: one has more numbers at hand than registers, the other has not.
#include <metal_stdlib>
using namespace metal;

constant constexpr uint kNumbers = 192;

kernel void spills(device const float* in [[buffer(0)]],
                   device float* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  float numbers[kNumbers];
#pragma clang loop unroll(full)
  for (uint j = 0; j < kNumbers; ++j) numbers[j] = in[i * kNumbers + j];
  threadgroup_barrier(mem_flags::mem_device);
#pragma clang loop unroll(full)
  for (uint j = 0; j < kNumbers; ++j) out[i * kNumbers + j] = numbers[kNumbers - 1 - j];
}

kernel void fits(device const float* in [[buffer(0)]],
                 device float* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  out[i] = in[i] * 2.0f;
}
