#pragma once

#include "linear_formats.h"

// What becomes of the sums of a matrix product: an activation, and the way to `out`.

constant uint LINEAR_ACTIVATION
    [[function_constant(kLinearActivation)]];  // 0 none, 1 silu, 2 gelu_tanh, 3 gelu, gated; 4 to 6 not

constant bool LINEAR_GATED = LINEAR_ACTIVATION >= 1 && LINEAR_ACTIVATION <= 3;

// As a number of 16 bits; of bf16 to nearest, ties to even, and a NaN stays one.
METAL_FUNC ushort linear_short(uint type, float value) {
  if (type == packed_f16) return as_type<ushort>(half(value));
  const uint bits = as_type<uint>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return ushort(nan ? bits >> 16 | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
METAL_FUNC void linear_store(constant LinearOut& o, device uchar* out, ulong i, float value) {
  if (o.type == packed_f32) {
    device float* to = (device float*)out + i;
    *to = o.accumulate ? *to + value : value;
  } else {
    ((device ushort*)out)[i] = linear_short(o.type, value);
  }
}
// Outputs `output`, which is even, and, where there are two, the next one.
METAL_FUNC void linear_store_two(constant LinearOut& o, device uchar* out, uint row, uint output, uint count,
                                 float first, float second) {
  const ulong i = ulong(row) * o.stride + output;
  if (o.type != packed_f32 && count == 2 && o.stride % 2 == 0) {
    ((device uint*)out)[i / 2] = linear_short(o.type, first) | uint(linear_short(o.type, second)) << 16;
    return;
  }
  linear_store(o, out, i, first);
  if (count == 2) linear_store(o, out, i + 1, second);
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

METAL_FUNC float linear_value(constant LinearOut& o, device const float* bias, device const float* bias_up, uint output,
                              float value, float up) {
  if (o.bias) value += bias[output];
  if (LINEAR_GATED) {
    if (o.bias_up) up += bias_up[output];
    value = linear_activation(value) * up;
  } else if (LINEAR_ACTIVATION != 0) {
    value = linear_activation(value);
  }
  return value;
}
// What result `output` of a row is added to; 0 where to nothing.
METAL_FUNC float linear_before(constant LinearOut& o, device const uchar* out, uint row, uint output) {
  return o.accumulate ? ((device const float*)out)[ulong(row) * o.stride + output] : 0.0f;
}
// With what it is added to at hand.
METAL_FUNC void linear_finish(constant LinearOut& o, float before, device const float* bias,
                              device const float* bias_up, device uchar* out, uint row, uint output, float value,
                              float up) {
  const float result = linear_value(o, bias, bias_up, output, value, up);
  const ulong i = ulong(row) * o.stride + output;
  if (o.type == packed_f32)
    ((device float*)out)[i] = o.accumulate ? before + result : result;
  else
    ((device ushort*)out)[i] = linear_short(o.type, result);
}
METAL_FUNC void linear_finish(constant LinearOut& o, device const float* bias, device const float* bias_up,
                              device uchar* out, uint row, uint output, float value, float up) {
  linear_finish(o, linear_before(o, out, row, output), bias, bias_up, out, row, output, value, up);
}
