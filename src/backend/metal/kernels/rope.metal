#include "common.h"

// cos and sin of the angle position * inv_freq for one pair of a head.
//
// The angle may be a million turns, and floats know it to a sixteenth of a turn only, so it is kept as a 64-bit
// fraction of a turn: inv_freq / 2 pi as an integer over 2^64, times the position, modulo 2^64. What is left is within
// an eighth of a turn, where short polynomials are exact to the last bit but one.
static float2 rope_cos_sin(int position, float inv_freq) {
  // inv_freq = mantissa * 2^-shift
  const uint bits = as_type<uint>(inv_freq);
  const int exponent = int((bits >> 23) & 255);
  if (exponent == 0) return float2(1, 0);
  const ulong mantissa = ulong((bits & 0x7fffffu) | 0x800000u);
  const int shift = 150 - exponent;
  // 2^64 / (2 pi) in two halves
  const ulong low = mantissa * 0x9391054Aul;
  const ulong high = mantissa * 0x28BE60DBul;
  const ulong sum = high + (low >> 32);  // of 2^32
  ulong turn;
  if (shift >= 96) {
    turn = 0;
  } else if (shift >= 32) {
    turn = sum >> (shift - 32);
  } else if (shift > 0) {
    turn = (sum << (32 - shift)) | ((low & 0xfffffffful) >> shift);
  } else {
    turn = ((sum << 32) | (low & 0xfffffffful)) << min(-shift, 63);
  }
  const ulong phase = ulong(long(position)) * turn;
  const uint quadrant = uint((phase + (1ul << 61)) >> 62);
  const long rest = long(phase - (ulong(quadrant) << 62));
  const float x = float(rest) * 3.4061215800e-19f;  // 2 pi / 2^64
  const float z = x * x;
  float s = fma(z, 2.7557319e-6f, -1.9841270e-4f);
  s = fma(z, s, 8.3333333e-3f);
  s = fma(z, s, -1.6666667e-1f);
  s = fma(x * z, s, x);
  float c = fma(z, -2.7557319e-7f, 2.4801587e-5f);
  c = fma(z, c, -1.3888889e-3f);
  c = fma(z, c, 4.1666667e-2f);
  c = fma(z * z, c, fma(z, -0.5f, 1.0f));
  switch (quadrant & 3) {
    case 0: return float2(c, s);
    case 1: return float2(-s, c);
    case 2: return float2(-c, -s);
    default: return float2(s, -c);
  }
}

[[kernel]] void rope_table(device const float* inv_freq [[buffer(0)]],  // [pairs]
                           device const int* positions [[buffer(1)]],   // [T]
                           device float2* out [[buffer(2)]],            // [T, pairs]
                           constant RopeTableParams& p [[buffer(3)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  const uint i = group * kRowThreads + thread_index;
  if (i < p.count) out[i] = rope_cos_sin(positions[i / p.pairs], inv_freq[i % p.pairs]) * p.factor;
}
