// What products need of AVX-512 beside simd/avx512.h; a vector is a whole panel. See tiles.h. INGOT_VNNI says whether
// the including file is compiled for that extension. Included inside its namespace; no include guard, no includes.
struct Machine {
  using I = __m512i;
  using X = const uint8_t*;
  using P = __m512i;
  static constexpr int kMaxTile = 8;
  // Two panels take what is loaded of the activations twice: a core that multiplies two vectors of bytes in a cycle
  // loads no more than two. One or two rows are bound by memory, which is read best in one stream.
  static constexpr int units(int rows, int, bool) { return INGOT_VNNI && rows >= 3 ? 2 : 1; }
  static constexpr int rows_at_once(int rows, int units, bool halves) {
    return units == 2 && rows > (halves ? 4 : 6) ? 4 : rows;
  }
  // Those of two planes; multiplying takes longer than taking others apart.
  static constexpr bool unpacks(const PanelFormat& format) { return format.high_bits > 0; }
  static constexpr int kFloatRows = 8;
  static constexpr int float_units(int) { return 1; }
  INGOT_INLINE void keep(Vec&) {}
#if INGOT_VNNI
  INGOT_INLINE void keep(I&) {}
#else
  INGOT_INLINE void keep(I& a) { asm volatile("" : "+v"(a)); }  // see machine_avx2.h
#endif

  INGOT_INLINE I load_codes(const void* p) { return _mm512_loadu_si512(p); }
  INGOT_INLINE void store_codes(void* p, I a) { _mm512_storeu_si512(p, a); }
  INGOT_INLINE I bytes(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  INGOT_INLINE I mask(I a, I b) { return _mm512_and_si512(a, b); }
  INGOT_INLINE I or_masked(I a, I b, I m) { return _mm512_ternarylogic_epi32(a, b, m, 0xf8); }  // a | (b & m)
  template <int n>
  INGOT_INLINE I shift_right(I a) {
    if constexpr (n == 0) return a;
    return _mm512_srli_epi16(a, n);
  }
  template <int n>
  INGOT_INLINE I shift_left(I a) {
    if constexpr (n == 0) return a;
    return _mm512_slli_epi16(a, n);
  }
  // 16 bytes, and those of them that bytes from 0 to 15 stand for.
  INGOT_INLINE I table(const uint8_t* p) { return _mm512_broadcast_i32x4(load_16(p)); }
  INGOT_INLINE I look_up(I table, I places) { return _mm512_shuffle_epi8(table, places); }
  INGOT_INLINE I zero_int() { return _mm512_setzero_si512(); }
  INGOT_INLINE I word_of(X x, int lane) { return _mm512_set1_epi32(*reinterpret_cast<const AnyInt*>(x + 4 * lane)); }
  template <int shift>
  INGOT_INLINE I start(const uint8_t* p) {
    return _mm512_slli_epi32(word_of(p, 0), shift);
  }
  INGOT_INLINE X load_x(const uint8_t* p) { return p; }

#if INGOT_VNNI
  static constexpr bool kSigned8 = false;
  template <int bits>
  static constexpr int kWords = 0;
  template <int lane>
  INGOT_INLINE I dot(I sum, I w, X x) {
    return _mm512_dpbusd_epi32(sum, w, word_of(x, lane));
  }
#else
  // 16-bit sums of pairs: two products of 4-bit codes and activations reach 2 * 15 * 127, so eight of them fit, and so
  // on.
  static constexpr bool kSigned8 = true;
  template <int bits>
  static constexpr int kWords = bits <= 4   ? 8
                                : bits == 5 ? 4
                                : bits == 6 ? 2
                                            : 1;
  INGOT_INLINE I flip_sign(I w) { return _mm512_xor_si512(w, _mm512_set1_epi8(-128)); }
  template <int bits, int lane>
  INGOT_INLINE P multiply(I w, X x) {
    const I word = word_of(x, lane);
    if constexpr (bits < 8) return _mm512_maddubs_epi16(w, word);
    // Signed codes: |w| times the activation with w's sign; 2 * 128 * 127 still fits.
    const __mmask64 negative = _mm512_movepi8_mask(w);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), _mm512_mask_sub_epi8(word, negative, _mm512_setzero_si512(), word));
  }
  template <int bits, int lane>
  INGOT_INLINE P multiply_add(P sum, I w, X x) {
    return _mm512_add_epi16(sum, multiply<bits, lane>(w, x));
  }
  INGOT_INLINE I fold(I sum, P p) { return _mm512_add_epi32(sum, _mm512_madd_epi16(p, _mm512_set1_epi16(1))); }
#endif

  INGOT_INLINE Vec to_float(I a) { return _mm512_cvtepi32_ps(a); }
  INGOT_INLINE Vec negate(Vec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  INGOT_INLINE Vec abs(Vec a) { return _mm512_abs_ps(a); }
  INGOT_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  INGOT_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  INGOT_INLINE Vec round(Vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  INGOT_INLINE Vec scale_by_power(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }
  INGOT_INLINE Vec select_negative(Vec x, Vec negative, Vec other) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), other, negative);
  }
  INGOT_INLINE Vec load_bf16_even(const void* p) { return _mm512_castsi512_ps(_mm512_slli_epi32(load_codes(p), 16)); }
  INGOT_INLINE Vec load_bf16_odd(const void* p) {
    return _mm512_castsi512_ps(_mm512_and_si512(load_codes(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  INGOT_INLINE __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  INGOT_INLINE Vec load_u8(const void* p) { return to_float(_mm512_cvtepu8_epi32(load_16(p))); }
  INGOT_INLINE Vec load_low4(const void* p) {
    return to_float(_mm512_and_si512(_mm512_cvtepu8_epi32(load_16(p)), _mm512_set1_epi32(15)));
  }
  INGOT_INLINE Vec load_high4(const void* p) {
    return to_float(_mm512_srli_epi32(_mm512_cvtepu8_epi32(load_16(p)), 4));
  }

  INGOT_INLINE float largest_of_32(const float* x) { return reduce_max(max(abs(load(x)), abs(load(x + 16)))); }
  INGOT_INLINE void quantize_32(const float* x, float inverse, int8_t* codes, int32_t& low_sum, int32_t& high_sum) {
    const Vec scale = broadcast(inverse);
    const I low = _mm512_cvtps_epi32(load(x) * scale), high = _mm512_cvtps_epi32(load(x + 16) * scale);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtsepi32_epi8(low));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtsepi32_epi8(high));
    // Both sums together: the four lanes of 128 bits are added, then lanes within each half.
    const __m256i low4 = _mm256_add_epi32(_mm512_castsi512_si256(low), _mm512_extracti64x4_epi64(low, 1));
    const __m256i high4 = _mm256_add_epi32(_mm512_castsi512_si256(high), _mm512_extracti64x4_epi64(high, 1));
    const __m256i pairs = _mm256_hadd_epi32(low4, high4);  // of low, low, high, high; in both halves
    const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    const __m128i sums = _mm_hadd_epi32(both, both);
    low_sum = _mm_cvtsi128_si32(sums);
    high_sum = _mm_extract_epi32(sums, 1);
  }

  // The same of 16 blocks behind each other, whose numbers end up in one vector: transposed and folded on the way.
  static constexpr int kManyBlocks = 16;
  INGOT_INLINE void largest_of_many(const float* x, float* largest) {
    Vec in[16], fours[4];
    INGOT_UNROLL for (int i = 0; i < 16; ++i) in[i] = max(abs(load(x + 32 * i)), abs(load(x + 32 * i + 16)));
    INGOT_UNROLL for (int i = 0; i < 4; ++i) {
      const Vec *b = in + 4 * i, one = max(_mm512_unpacklo_ps(b[0], b[1]), _mm512_unpackhi_ps(b[0], b[1])),
                two = max(_mm512_unpacklo_ps(b[2], b[3]), _mm512_unpackhi_ps(b[2], b[3]));
      fours[i] = max(_mm512_shuffle_ps(one, two, 0x44), _mm512_shuffle_ps(one, two, 0xee));
    }
    const Vec low = max(_mm512_shuffle_f32x4(fours[0], fours[1], 0x88), _mm512_shuffle_f32x4(fours[0], fours[1], 0xdd)),
              high =
                  max(_mm512_shuffle_f32x4(fours[2], fours[3], 0x88), _mm512_shuffle_f32x4(fours[2], fours[3], 0xdd));
    store(largest, max(_mm512_shuffle_f32x4(low, high, 0x88), _mm512_shuffle_f32x4(low, high, 0xdd)));
  }
  INGOT_INLINE __m256i codes_of_32(const float* x, float inverse, uint8_t* codes) {
    const Vec scale = broadcast(inverse);
    const __m128i low = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(load(x) * scale)),
                  high = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(load(x + 16) * scale));
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), both);
    return both;
  }
  // codes: `stride` bytes from one block's to the next one's.
  INGOT_INLINE void quantize_many(const float* x, const float* inverse, uint8_t* codes, size_t stride, int32_t* low,
                                  int32_t* high) {
    I eights[2];  // sums of four blocks' low halves, of their high halves, and of four more
    INGOT_UNROLL for (int i = 0; i < 2; ++i) {
      I quarters[4];  // sums of four codes each, of blocks b and b + 4
      INGOT_UNROLL for (int b = 0; b < 4; ++b) {
        const int at = 8 * i + b;
        const __m256i one = codes_of_32(x + 32 * at, inverse[at], codes + at * stride),
                      two = codes_of_32(x + 32 * at + 128, inverse[at + 4], codes + (at + 4) * stride);
        const I all = _mm512_inserti64x4(_mm512_castsi256_si512(one), two, 1);
        quarters[b] = _mm512_madd_epi16(_mm512_maddubs_epi16(_mm512_set1_epi8(1), all), _mm512_set1_epi16(1));
      }
      const I one = _mm512_add_epi32(_mm512_unpacklo_epi32(quarters[0], quarters[1]),
                                     _mm512_unpackhi_epi32(quarters[0], quarters[1])),
              two = _mm512_add_epi32(_mm512_unpacklo_epi32(quarters[2], quarters[3]),
                                     _mm512_unpackhi_epi32(quarters[2], quarters[3]));
      eights[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(one, two), _mm512_unpackhi_epi64(one, two));
    }
    _mm512_storeu_si512(low, _mm512_shuffle_i32x4(eights[0], eights[1], 0x88));
    _mm512_storeu_si512(high, _mm512_shuffle_i32x4(eights[0], eights[1], 0xdd));
  }
};
