// Panels of a block format against a tile of quantized rows, over the vector type V of tiles.h, which includes this.
// No include guard, no includes.
template <class V, DType kType, int kRows>
struct BlockTile {
  using I = typename V::I;
  using F = typename V::F;
  static constexpr PanelFormat kFormat = panel_format(kType);
  static constexpr int kBits = kFormat.code_bits();
  static constexpr bool kHalves = needs_halves(kType);
  static constexpr bool kMins = has_min(kFormat.scales);
  static constexpr int kZero = kBits == 8 && V::kSigned8 ? 0 : kFormat.zero_point;
  // Half a block has only four words.
  static constexpr int kWords = V::template kWords<kBits> == 8 && kHalves ? 4 : V::template kWords<kBits>;
  // Whether sums leave the partial ones before the last word of a record (or half a record).
  static constexpr bool kFolds = kWords > 0 && kWords < (kHalves ? 4 : 8);
  static constexpr int kUnits = V::units(kRows, kBits, kHalves);
  static constexpr int kField = 4 * kRows;  // bytes of one number of every row of an activation record

  template <int kGroup>
  using Dots = I[kUnits][kGroup];
  template <int kGroup>
  using Partials = typename V::P[kUnits][kGroup];
  using Floats = F[kUnits][kRows];

  // Word j of kLanes rows, one code, or the number it stands for, a byte.
  template <int j>
  INGOT_INLINE I word(const uint8_t* codes) {
    constexpr int kLow = kFormat.low_bits;
    I w;
    if constexpr (kLow == 8) {
      w = V::load(codes + 64 * j);
      if constexpr (V::kSigned8) w = V::flip_sign(w);
    } else if constexpr (kLow == 4) {
      w = V::load(codes + 64 * (j % 4));
      w = V::mask(V::template shift_right<j / 4 * 4>(w), V::bytes(15));
    } else {
      w = V::load(codes + 64 * (j / 4));
      w = V::mask(V::template shift_right<j % 4 * 2>(w), V::bytes(3));
    }
    if constexpr (kFormat.high_bits > 0) {
      constexpr bool kTwo = kFormat.high_bits == 2;
      constexpr int kAt = kTwo ? j % 4 * 2 : j;  // where the bits lie in their plane; they belong at kLow
      const I plane = V::load(codes + 64 * (kLow + (kTwo ? j / 4 : 0)));
      const I bits = V::bytes((kTwo ? 3 : 1) << kLow);
      if constexpr (kAt <= kLow) {
        w = V::or_masked(w, V::template shift_left<kLow - kAt>(plane), bits);
      } else {
        w = V::or_masked(w, V::template shift_right<kAt - kLow>(plane), bits);
      }
    }
    if constexpr (kFormat.has_numbers) {
      I table = V::table(kFormat.numbers);
      if constexpr (V::kSigned8) table = V::flip_sign(table);
      w = V::look_up(table, w);
    }
    return w;
  }

  // Adds word j to the dot products, of which word kFirst was the first.
  template <int j, int kFirst, int kGroup>
  INGOT_INLINE void step(const uint8_t* codes, const typename V::X (&x)[kGroup], Partials<kGroup>& partial,
                         Dots<kGroup>& dot) {
    I w[kUnits];
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) w[u] = word<j>(codes + u * V::kLanes * 4);
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
      if constexpr (kWords == 0) {
        dot[u][r] = V::template dot<j % 4>(dot[u][r], w[u], x[r]);
        V::keep(dot[u][r]);
      } else {
        constexpr int kIndex = (j - kFirst) % kWords;
        if constexpr (kIndex == 0) partial[u][r] = V::template multiply<kBits, j % 4>(w[u], x[r]);
        if constexpr (kIndex != 0) partial[u][r] = V::template multiply_add<kBits, j % 4>(partial[u][r], w[u], x[r]);
        V::keep(partial[u][r]);
        if constexpr (kIndex == kWords - 1 && kFolds) {
          dot[u][r] = V::fold(dot[u][r], partial[u][r]);
          V::keep(dot[u][r]);
        }
      }
    }
  }

  // Words j..j+3. act: the first row's codes.
  template <int j, int kFirst, int kGroup>
  INGOT_INLINE void steps(const uint8_t* codes, const uint8_t* act, Partials<kGroup>& partial, Dots<kGroup>& dot) {
    typename V::X x[kGroup];
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) x[r] = V::load_x(act + r * kBlock + j * 4);
    step<j, kFirst, kGroup>(codes, x, partial, dot);
    step<j + 1, kFirst, kGroup>(codes, x, partial, dot);
    step<j + 2, kFirst, kGroup>(codes, x, partial, dot);
    step<j + 3, kFirst, kGroup>(codes, x, partial, dot);
  }

  // Scale and min of half a record; d and dmin are the header's, or the record's own.
  INGOT_INLINE F scale_of(F d, const uint8_t* scales, int half) {
    if constexpr (kFormat.scales == Scales::super32_min) return V::mul(d, V::load_u8(scales));
    if constexpr (kFormat.scales == Scales::super16) return V::mul(d, V::load_i8(scales + 16 * half));
    if constexpr (kFormat.scales == Scales::super16_min) return V::mul(d, V::load_low4(scales + 16 * half));
    return d;
  }
  INGOT_INLINE F min_of(F dmin, const uint8_t* scales, int half) {
    if constexpr (kFormat.scales == Scales::super32_min) return V::negated_mul(dmin, V::load_u8(scales + 16));
    if constexpr (kFormat.scales == Scales::super16_min) return V::negated_mul(dmin, V::load_high4(scales + 16 * half));
    return dmin;
  }

  // Dot products begin at minus the zero point times the sum of the activations.
  template <int kGroup>
  INGOT_INLINE void start(const uint8_t* minus_sums, Dots<kGroup>& dot) {
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
      if constexpr (kZero == 0) dot[u][r] = V::zero_int();
      if constexpr (kZero != 0) dot[u][r] = V::template start<log2_of(kZero)>(minus_sums + 4 * r);
    }
  }

  template <int kGroup>
  INGOT_INLINE void fold_all(const uint8_t* minus_sums, const Partials<kGroup>& partial, Dots<kGroup>& dot) {
    start<kGroup>(minus_sums, dot);
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) dot[u][r] =
        V::fold(dot[u][r], partial[u][r]);
  }

  // One record against kGroup rows from row kRow on; d and dmin of each unit.
  template <int kRow, int kGroup>
  INGOT_INLINE void record(const uint8_t* codes, const uint8_t* act, int lane, const F (&d)[kUnits],
                           const F (&dmin)[kUnits], Floats& acc) {
    const uint8_t* scales = codes + kFormat.code_bytes + lane;
    codes += lane * 4;
    const uint8_t* fields = act + kRows * kBlock + 4 * kRow;
    act += kRow * kBlock;
    Partials<kGroup> partial;
    Dots<kGroup> dot;
    if constexpr (!kHalves) {
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + kField, dot);
      steps<0, 0, kGroup>(codes, act, partial, dot);
      steps<4, 0, kGroup>(codes, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const F scale = scale_of(d[u], scales + u * V::kLanes, 0);
        F min = V::zero();
        if constexpr (kMins) min = min_of(dmin[u], scales + u * V::kLanes, 0);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
          F& sum = acc[u][kRow + r];
          sum = V::fma(V::to_float(dot[u][r]), V::mul(scale, V::broadcast(fields + 4 * r)), sum);
          if constexpr (kMins) sum = V::fma(min, V::broadcast(fields + 2 * kField + 4 * r), sum);
        }
      }
    } else {
      F sum[kUnits][kGroup];
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + 3 * kField, dot);
      steps<0, 0, kGroup>(codes, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + 3 * kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const F scale = scale_of(d[u], scales + u * V::kLanes, 0);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) sum[u][r] = V::mul(V::to_float(dot[u][r]), scale);
      }
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + 4 * kField, dot);
      steps<4, 4, kGroup>(codes, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + 4 * kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const F scale = scale_of(d[u], scales + u * V::kLanes, 1);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
          sum[u][r] = V::fma(V::to_float(dot[u][r]), scale, sum[u][r]);
          acc[u][kRow + r] = V::fma(sum[u][r], V::broadcast(fields + 4 * r), acc[u][kRow + r]);
        }
        if constexpr (kMins) {
          const F min0 = min_of(dmin[u], scales + u * V::kLanes, 0), min1 = min_of(dmin[u], scales + u * V::kLanes, 1);
          INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
            F& total = acc[u][kRow + r];
            total = V::fma(min0, V::broadcast(fields + 5 * kField + 4 * r), total);
            total = V::fma(min1, V::broadcast(fields + 6 * kField + 4 * r), total);
          }
        }
      }
    }
  }

  // The fine records of some of the rows, a bit each.
  template <int kRow>
  INGOT_INLINE void fine_records(uint32_t rows, const uint8_t* codes, const uint8_t* act, int lane,
                                 const F (&d)[kUnits], const F (&dmin)[kUnits], Floats& acc) {
    if ((rows >> kRow & 1) != 0) record<kRow, 1>(codes, act, lane, d, dmin, acc);
    if constexpr (kRow + 1 < kRows) fine_records<kRow + 1>(rows, codes, act, lane, d, dmin, acc);
  }

  static void run(const TileArgs& args) {
    const size_t act_bytes = args.halves ? kRows * 60 : kRows * 44;
    for (int i = 0; i < args.panels; ++i) {
      for (int lane = 0; lane < kPanelRows; lane += kUnits * V::kLanes) {
        Floats acc;
        const uint8_t* at = args.panel + static_cast<size_t>(i) * args.panel_bytes;
        const uint8_t* act = args.act;
        int64_t column = 0;
        for (int slice = 0; slice < args.slices; ++slice) {
          INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r) acc[u][r] =
              V::zero();
          const int64_t blocks = (args.slice_ends[slice] - column) / kBlock;
          const int64_t fine = blocks * static_cast<int64_t>(act_bytes);  // from a record to its fine one
          const uint32_t* outliers = reinterpret_cast<const uint32_t*>(act + 2 * fine);
          const uint8_t* next = act + 2 * fine + blocks * kRows * 4;
          for (int64_t group = blocks / kFormat.group(); group > 0; --group) {
            const uint8_t* own = (kFormat.header_bytes > 0 ? at : at + kFormat.code_bytes) + 2 * lane;
            F d[kUnits], dmin[kUnits];
            INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
              d[u] = V::load_half(own + 2 * u * V::kLanes);
              dmin[u] = kMins ? V::load_half(own + 32 + 2 * u * V::kLanes) : V::zero();
            }
            at += kFormat.header_bytes;
            for (int sub = 0; sub < kFormat.group(); ++sub, at += kFormat.record_bytes, act += act_bytes) {
              if constexpr (kRows >= kPrefetchRows)
                for (int b = 0; b < kFormat.record_bytes; b += 64) __builtin_prefetch(at + kPrefetch + b);
              record<0, kRows>(at, act, lane, d, dmin, acc);
              if (const uint32_t rows = *outliers++; rows != 0) {
                // Decoded again: the compiler would keep every record's words in memory for this.
                const uint8_t* again = at;
                asm("" : "+r"(again));
                fine_records<0>(rows, again, act + fine, lane, d, dmin, acc);
              }
            }
          }
          if (args.slices > 1) add_slice<V>(slice, acc, args.waiting);
          act = next;
          column = args.slice_ends[slice];
        }
        float* out = args.out + i * kRows * kPanelRows + lane;
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r)
            V::store(out + r * kPanelRows + u * V::kLanes, acc[u][r]);
      }
    }
  }
};
