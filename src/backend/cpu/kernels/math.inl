typedef uint32_t Bits __attribute__((vector_size(sizeof(Vec))));

// exp2 of every lane, for arguments up to about 100. Below -126.5 it is exactly 0, and so is -infinity; NaN stays NaN.
inline Vec exp2_lanes(Vec x) {
  const Vec low = broadcast(-127.0f);
  x = x < low ? low : x;
  // Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the mantissa.
  const Vec magic = broadcast(0x1.8p23f);
  const Vec shifted = x + magic;
  const Vec f = x - (shifted - magic);  // [-0.5, 0.5]
  // The Taylor series of 2^f; the first term left out is at most 5e-9.
  Vec p = broadcast(1.52527338e-5f);
  p = fma(p, f, broadcast(1.54035304e-4f));
  p = fma(p, f, broadcast(1.33335581e-3f));
  p = fma(p, f, broadcast(9.61812911e-3f));
  p = fma(p, f, broadcast(5.55041087e-2f));
  p = fma(p, f, broadcast(2.40226507e-1f));
  p = fma(p, f, broadcast(6.93147181e-1f));
  p = fma(p, f, broadcast(1.0f));
  const Bits exponent = ((Bits)shifted << 23) + (127u << 23);
  return p * (Vec)exponent;
}

inline float exp2_one(float x) { return exp2_lanes(broadcast(x))[0]; }

// b where either is NaN.
inline Vec max_lanes(Vec a, Vec b) { return a > b ? a : b; }

// 0, 1, 2, ... in the lanes.
inline IVec lane_numbers() {
  IVec v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}
