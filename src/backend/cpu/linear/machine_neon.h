// What products need of NEON beside simd/neon.h; a vector is a quarter of a panel. See tiles.h. INGOT_DOTPROD says
// whether the including file is compiled for the dot product instructions. Included inside the ISA's namespace; no
// include guard, no includes.
struct Machine {
  using I = uint8x16_t;  // also int32 lanes, by reinterpretation
  using X = int8x16_t;
#if INGOT_DOTPROD
  static constexpr int kMaxTile = 8;
#else
  static constexpr int kMaxTile = 4;  // partial sums take two registers a row: eight rows would leave them
#endif
  static constexpr bool kSigned8 = true;
  INGOT_INLINE void keep(Vec&) {}
  static constexpr int rows_at_once(int rows, int, bool) { return rows; }
  static constexpr bool unpacks(const PanelFormat&) { return false; }
  static constexpr int kFloatRows = kMaxTile;
  static constexpr int float_units(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }
  static constexpr int units(int rows, int, bool) { return float_units(rows); }

  INGOT_INLINE I load_codes(const uint8_t* p) { return vld1q_u8(p); }
  INGOT_INLINE I bytes(int v) { return vdupq_n_u8(static_cast<uint8_t>(v)); }
  INGOT_INLINE I mask(I a, I b) { return vandq_u8(a, b); }
  INGOT_INLINE I or_masked(I a, I b, I m) { return vorrq_u8(a, vandq_u8(b, m)); }
  template <int n>
  INGOT_INLINE I shift_right(I a) {
    if constexpr (n == 0) {
      return a;
    } else {
      return vshrq_n_u8(a, n);
    }
  }
  template <int n>
  INGOT_INLINE I shift_left(I a) {
    return vshlq_n_u8(a, n);
  }
  // 16 bytes, and those of them that bytes from 0 to 15 stand for.
  INGOT_INLINE I table(const uint8_t* p) { return vld1q_u8(p); }
  INGOT_INLINE I look_up(I table, I places) { return vqtbl1q_u8(table, places); }
  INGOT_INLINE I flip_sign(I w) { return veorq_u8(w, vdupq_n_u8(0x80)); }
  INGOT_INLINE int32x4_t ints(I a) { return vreinterpretq_s32_u8(a); }
  INGOT_INLINE I from_ints(int32x4_t a) { return vreinterpretq_u8_s32(a); }
  INGOT_INLINE I zero_int() { return vdupq_n_u8(0); }
  template <int shift>
  INGOT_INLINE I start(const uint8_t* p) {
    return from_ints(vshlq_n_s32(vdupq_n_s32(*reinterpret_cast<const AnyInt*>(p)), shift));
  }
  INGOT_INLINE X load_x(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }

#if INGOT_DOTPROD
  struct P {};
  INGOT_INLINE void keep(I&) {}
  template <int bits>
  static constexpr int kWords = 0;
  template <int lane>
  INGOT_INLINE I dot(I sum, I w, X x) {
    return from_ints(vdotq_laneq_s32(ints(sum), vreinterpretq_s8_u8(w), x, lane));
  }
#else
  struct P {                          // 16-bit sums of products: columns of rows 0 and 1, of rows 2 and 3
    int16x8_t low, high;
  };
  INGOT_INLINE void keep(P&) {}
  INGOT_INLINE void keep(I&) {}
  // A product of a 6-bit code reaches 63 * 127, so four of them fit, and so on.
  template <int bits>
  static constexpr int kWords = bits <= 5   ? 8
                                : bits == 6 ? 4
                                            : 2;
  template <int lane>
  INGOT_INLINE int8x16_t word_of(X x) {
    return vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane));
  }
  template <int bits, int lane>
  INGOT_INLINE P multiply(I w, X x) {
    const int8x16_t a = vreinterpretq_s8_u8(w), b = word_of<lane>(x);
    return {vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b)};
  }
  template <int bits, int lane>
  INGOT_INLINE P multiply_add(P sum, I w, X x) {
    const int8x16_t a = vreinterpretq_s8_u8(w), b = word_of<lane>(x);
    return {vmlal_s8(sum.low, vget_low_s8(a), vget_low_s8(b)), vmlal_high_s8(sum.high, a, b)};
  }
  INGOT_INLINE I fold(I sum, P p) {
    return from_ints(vaddq_s32(ints(sum), vpaddq_s32(vpaddlq_s16(p.low), vpaddlq_s16(p.high))));
  }
#endif

  INGOT_INLINE Vec to_float(I a) { return vcvtq_f32_s32(ints(a)); }
  INGOT_INLINE Vec negate(Vec a) { return vnegq_f32(a); }
  INGOT_INLINE Vec abs(Vec a) { return vabsq_f32(a); }
  INGOT_INLINE Vec max(Vec a, Vec b) { return vmaxq_f32(a, b); }
  INGOT_INLINE Vec min(Vec a, Vec b) { return vminq_f32(a, b); }
  INGOT_INLINE Vec round(Vec a) { return vrndnq_f32(a); }
  INGOT_INLINE Vec scale_by_power(Vec a, Vec n) {
    const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
    return a * (Vec)vshlq_n_s32(exponent, 23);
  }
  INGOT_INLINE Vec select_negative(Vec x, Vec negative, Vec other) { return vbslq_f32(vcltzq_f32(x), negative, other); }
  INGOT_INLINE Vec load_bf16_even(const void* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p))), 16));
  }
  INGOT_INLINE Vec load_bf16_odd(const void* p) {
    const uint32x4_t pair = vreinterpretq_u32_u8(vld1q_u8(static_cast<const uint8_t*>(p)));
    return vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000u)));
  }
  INGOT_INLINE uint16x4_t load_4(const void* p) { return vget_low_u16(vmovl_u8(vreinterpret_u8_s32(load_word(p)))); }
  INGOT_INLINE Vec load_u8(const void* p) { return vcvtq_f32_u32(vmovl_u16(load_4(p))); }
  INGOT_INLINE Vec load_low4(const void* p) { return vcvtq_f32_u32(vmovl_u16(vand_u16(load_4(p), vdup_n_u16(15)))); }
  INGOT_INLINE Vec load_high4(const void* p) { return vcvtq_f32_u32(vmovl_u16(vshr_n_u16(load_4(p), 4))); }

  static constexpr int kManyBlocks = 1;  // there is no largest_of_many() or quantize_many()
  INGOT_INLINE float largest_of_32(const float* x) {
    Vec m = abs(load(x));
    INGOT_UNROLL for (int i = 4; i < 32; i += 4) m = max(m, abs(load(x + i)));
    return reduce_max(m);
  }
  INGOT_INLINE int32_t quantize_16(const float* x, Vec scale, int8_t* codes) {
    int32x4_t v[4];
    INGOT_UNROLL for (int i = 0; i < 4; ++i) v[i] = vcvtnq_s32_f32(load(x + 4 * i) * scale);
    const int16x8_t low = vcombine_s16(vqmovn_s32(v[0]), vqmovn_s32(v[1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(v[2]), vqmovn_s32(v[3]));
    vst1q_s8(codes, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(v[0], v[1]), vaddq_s32(v[2], v[3])));
  }
  INGOT_INLINE void quantize_32(const float* x, float inverse, int8_t* codes, int32_t& low_sum, int32_t& high_sum) {
    low_sum = quantize_16(x, broadcast(inverse), codes);
    high_sum = quantize_16(x + 16, broadcast(inverse), codes + 16);
  }
};
