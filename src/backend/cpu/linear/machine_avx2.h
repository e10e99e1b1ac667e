// What products need of AVX2 beside simd/avx2.h; a vector is half a panel. See tiles.h. Included inside the ISA's
// namespace; no include guard, no includes.
struct Machine {
  using I = __m256i;
  using X = const uint8_t*;
  using P = __m256i;  // 16-bit sums of pairs
  static constexpr int kMaxTile = 5;
  static constexpr bool kSigned8 = true;
  // Dot products take registers, and those of codes whose sums leave 16 bits within a block twice as many.
  static constexpr int units(int rows, int bits, bool halves) {
    return rows <= 2 || ((bits <= 4 || bits == 8) && !halves) ? 2 : 1;
  }
  static constexpr int rows_at_once(int rows, int, bool) { return rows; }
  // A core is bound by the number of instructions, of which taking codes apart is a twentieth to a third.
  static constexpr bool unpacks(const PanelFormat& format) { return format.low_bits > 0; }
  static constexpr int kFloatRows = 3;
  static constexpr int float_units(int) { return 2; }

  // Left where and when it is: compilers otherwise sum in another order, with more numbers under way than registers.
  INGOT_INLINE void keep(I& a) { asm volatile("" : "+x"(a)); }
  INGOT_INLINE void keep(Vec& a) { asm volatile("" : "+x"(a)); }

  INGOT_INLINE I load_codes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  INGOT_INLINE void store_codes(void* p, I a) { _mm256_storeu_si256(static_cast<__m256i*>(p), a); }
  INGOT_INLINE I bytes(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  INGOT_INLINE I mask(I a, I b) { return _mm256_and_si256(a, b); }
  INGOT_INLINE I or_masked(I a, I b, I m) { return _mm256_or_si256(a, _mm256_and_si256(b, m)); }
  template <int n>
  INGOT_INLINE I shift_right(I a) {
    if constexpr (n == 0) return a;
    return _mm256_srli_epi16(a, n);
  }
  template <int n>
  INGOT_INLINE I shift_left(I a) {
    if constexpr (n == 0) return a;
    return _mm256_slli_epi16(a, n);
  }
  // 16 bytes, and those of them that bytes from 0 to 15 stand for.
  INGOT_INLINE I table(const uint8_t* p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  INGOT_INLINE I look_up(I table, I places) { return _mm256_shuffle_epi8(table, places); }
  INGOT_INLINE I flip_sign(I w) { return _mm256_xor_si256(w, _mm256_set1_epi8(-128)); }
  INGOT_INLINE I zero_int() { return _mm256_setzero_si256(); }
  INGOT_INLINE I word_of(X x, int lane) { return _mm256_set1_epi32(*reinterpret_cast<const AnyInt*>(x + 4 * lane)); }
  template <int shift>
  INGOT_INLINE I start(const uint8_t* p) {
    return _mm256_slli_epi32(word_of(p, 0), shift);
  }
  INGOT_INLINE X load_x(const uint8_t* p) { return p; }

  // Two products of 4-bit codes and activations reach 2 * 15 * 127, so eight of them fit 16 bits, and so on.
  template <int bits>
  static constexpr int kWords = bits <= 4   ? 8
                                : bits == 5 ? 4
                                : bits == 6 ? 2
                                            : 1;
  template <int bits, int lane>
  INGOT_INLINE P multiply(I w, X x) {
    const I word = word_of(x, lane);
    if constexpr (bits < 8) return _mm256_maddubs_epi16(w, word);
    // Signed codes: |w| times the activation with w's sign; 2 * 128 * 127 still fits.
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(word, w));
  }
  template <int bits, int lane>
  INGOT_INLINE P multiply_add(P sum, I w, X x) {
    return _mm256_add_epi16(sum, multiply<bits, lane>(w, x));
  }
  INGOT_INLINE I fold(I sum, P p) { return _mm256_add_epi32(sum, _mm256_madd_epi16(p, _mm256_set1_epi16(1))); }

  INGOT_INLINE Vec to_float(I a) { return _mm256_cvtepi32_ps(a); }
  INGOT_INLINE Vec negate(Vec a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  INGOT_INLINE Vec abs(Vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  INGOT_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  INGOT_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  INGOT_INLINE Vec round(Vec a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  INGOT_INLINE Vec scale_by_power(Vec a, Vec n) {
    const I exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return a * (Vec)_mm256_slli_epi32(exponent, 23);
  }
  INGOT_INLINE Vec select_negative(Vec x, Vec negative, Vec other) {
    return _mm256_blendv_ps(other, negative, _mm256_cmp_ps(x, Vec{}, _CMP_LT_OQ));
  }
  INGOT_INLINE Vec load_bf16_even(const void* p) { return _mm256_castsi256_ps(_mm256_slli_epi32(load_codes(p), 16)); }
  INGOT_INLINE Vec load_bf16_odd(const void* p) {
    return _mm256_castsi256_ps(_mm256_and_si256(load_codes(p), _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  INGOT_INLINE __m128i load_8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
  INGOT_INLINE Vec load_u8(const void* p) { return to_float(_mm256_cvtepu8_epi32(load_8(p))); }
  INGOT_INLINE Vec load_low4(const void* p) {
    return to_float(_mm256_and_si256(_mm256_cvtepu8_epi32(load_8(p)), _mm256_set1_epi32(15)));
  }
  INGOT_INLINE Vec load_high4(const void* p) { return to_float(_mm256_srli_epi32(_mm256_cvtepu8_epi32(load_8(p)), 4)); }

  static constexpr int kManyBlocks = 1;  // there is no largest_of_many() or quantize_many()
  INGOT_INLINE float largest_of_32(const float* x) {
    return reduce_max(max(max(abs(load(x)), abs(load(x + 8))), max(abs(load(x + 16)), abs(load(x + 24)))));
  }
  INGOT_INLINE int32_t sum_of(I a) {
    __m128i h = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
  }
  INGOT_INLINE void quantize_32(const float* x, float inverse, int8_t* codes, int32_t& low_sum, int32_t& high_sum) {
    const Vec scale = broadcast(inverse);
    I v[4];
    INGOT_UNROLL for (int i = 0; i < 4; ++i) v[i] = _mm256_cvtps_epi32(load(x + 8 * i) * scale);
    low_sum = sum_of(_mm256_add_epi32(v[0], v[1]));
    high_sum = sum_of(_mm256_add_epi32(v[2], v[3]));
    // Packing works on 128-bit halves; the permutation puts groups of four back in order.
    const I packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const I order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_permutevar8x32_epi32(packed, order));
  }
};
