// Each of these runs on the software device, where all memory is alike, and is refused by Apple's compiler.
#include <metal_stdlib>
using namespace metal;

float first(thread const float& x) { return x; }
float pointed(device const float* x) { return x[0]; }

kernel void bad(device float* out [[buffer(0)]], constant float* in [[buffer(1)]]) {
  threadgroup float tile[4];
  tile[0] = 1;
  out[0] = first(tile[0]);        // threadgroup to thread
  out[1] = pointed(tile);         // threadgroup to device
  device const float* p = in;     // constant to device
  float* q = out;                 // no address space
  out[2] = p[0] + q[0];
}
