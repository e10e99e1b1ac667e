// Panels of a block format against a tile of quantized rows, over the Machine M of tiles.h, which includes this.
// No include guard, no includes.
//
// Units are vectors of a panel, or, where a vector is as wide as a panel, panels that lie behind each other: `next` is
// from one unit's panel to the next one's, 0 within a panel.
// kUnpacked: the codes were taken apart before.
template <class M, DType kType, int kRows, int kUnits, bool kUnpacked = false>
struct BlockTile {
  using I = typename M::I;
  static constexpr PanelFormat kFormat = kUnpacked ? unpacked_format(kType) : panel_format(kType);
  static constexpr int kBits = kFormat.code_bits();
  static constexpr bool kHalves = needs_halves(kType);
  static constexpr bool kMins = has_min(kFormat.scales);
  static constexpr int kZero = kBits == 8 && M::kSigned8 ? 0 : kFormat.zero_point;
  // Half a block has only four words.
  static constexpr int kWords = M::template kWords<kBits> == 8 && kHalves ? 4 : M::template kWords<kBits>;
  // Whether sums leave the partial ones before the last word of a record (or half a record).
  static constexpr bool kFolds = kWords > 0 && kWords < (kHalves ? 4 : 8);
  // Rows whose dot products are under way together; the rest of the tile waits.
  static constexpr int kMost = M::rows_at_once(kRows, kUnits, kHalves);
  static constexpr int kField = 4 * kRows;  // bytes of one number of every row of an activation record

  template <int kGroup>
  using Dots = I[kUnits][kGroup];
  template <int kGroup>
  using Partials = typename M::P[kUnits][kGroup];
  using Floats = Vec[kUnits][kRows];

  // Numbers of `bytes` bytes a row of a unit, which begin at p for the first one.
  INGOT_INLINE const uint8_t* of_unit(const uint8_t* p, int u, int bytes, size_t next) {
    return p + static_cast<size_t>(u * kLanes % kPanelRows) * bytes + u * kLanes / kPanelRows * next;
  }

  // Word j of kLanes rows, one code, or the number it stands for, a byte.
  template <int j>
  INGOT_INLINE I word(const uint8_t* codes) {
    if constexpr (kUnpacked) return M::load_codes(codes + 64 * j);
    constexpr int kLow = kFormat.low_bits;
    I w;
    if constexpr (kLow == 8) {
      w = M::load_codes(codes + 64 * j);
      if constexpr (M::kSigned8) w = M::flip_sign(w);
    } else if constexpr (kLow == 4) {
      w = M::load_codes(codes + 64 * (j % 4));
      w = M::mask(M::template shift_right<j / 4 * 4>(w), M::bytes(15));
    } else {
      w = M::load_codes(codes + 64 * (j / 4));
      w = M::mask(M::template shift_right<j % 4 * 2>(w), M::bytes(3));
    }
    if constexpr (kFormat.high_bits > 0) {
      constexpr bool kTwo = kFormat.high_bits == 2;
      constexpr int kAt = kTwo ? j % 4 * 2 : j;  // where the bits lie in their plane; they belong at kLow
      const I plane = M::load_codes(codes + 64 * (kLow + (kTwo ? j / 4 : 0)));
      const I bits = M::bytes((kTwo ? 3 : 1) << kLow);
      if constexpr (kAt <= kLow) {
        w = M::or_masked(w, M::template shift_left<kLow - kAt>(plane), bits);
      } else {
        w = M::or_masked(w, M::template shift_right<kAt - kLow>(plane), bits);
      }
    }
    if constexpr (kFormat.has_numbers) {
      I table = M::table(kFormat.numbers);
      if constexpr (M::kSigned8) table = M::flip_sign(table);
      w = M::look_up(table, w);
    }
    return w;
  }

  // Adds word j to the dot products, of which word kFirst was the first.
  template <int j, int kFirst, int kGroup>
  INGOT_INLINE void step(const uint8_t* codes, size_t next, const typename M::X (&x)[kGroup], Partials<kGroup>& partial,
                         Dots<kGroup>& dot) {
    I w[kUnits];
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) w[u] = word<j>(of_unit(codes, u, 4, next));
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
      if constexpr (kWords == 0) {
        dot[u][r] = M::template dot<j % 4>(dot[u][r], w[u], x[r]);
        M::keep(dot[u][r]);
      } else if constexpr (kWords == 1) {
        dot[u][r] = M::fold(dot[u][r], M::template multiply<kBits, j % 4>(w[u], x[r]));
        M::keep(dot[u][r]);
      } else {
        constexpr int kIndex = (j - kFirst) % kWords;
        if constexpr (kIndex == 0) partial[u][r] = M::template multiply<kBits, j % 4>(w[u], x[r]);
        if constexpr (kIndex != 0) partial[u][r] = M::template multiply_add<kBits, j % 4>(partial[u][r], w[u], x[r]);
        if constexpr (kIndex == kWords - 1 && kFolds) {
          dot[u][r] = M::fold(dot[u][r], partial[u][r]);
          M::keep(dot[u][r]);
        } else {
          M::keep(partial[u][r]);
        }
      }
    }
  }

  // Words j..j+3. act: the first row's codes.
  template <int j, int kFirst, int kGroup>
  INGOT_INLINE void steps(const uint8_t* codes, size_t next, const uint8_t* act, Partials<kGroup>& partial,
                          Dots<kGroup>& dot) {
    typename M::X x[kGroup];
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) x[r] = M::load_x(act + r * kBlock + j * 4);
    step<j, kFirst, kGroup>(codes, next, x, partial, dot);
    step<j + 1, kFirst, kGroup>(codes, next, x, partial, dot);
    step<j + 2, kFirst, kGroup>(codes, next, x, partial, dot);
    step<j + 3, kFirst, kGroup>(codes, next, x, partial, dot);
  }

  // Scale and min of half a record; d and dmin are the header's, or the record's own.
  INGOT_INLINE Vec scale_of(Vec d, const uint8_t* scales, int half) {
    if constexpr (kFormat.scales == Scales::super32_min) return d * M::load_u8(scales);
    if constexpr (kFormat.scales == Scales::super16) return d * load_i8(scales + 16 * half);
    if constexpr (kFormat.scales == Scales::super16_min) return d * M::load_low4(scales + 16 * half);
    return d;
  }
  INGOT_INLINE Vec min_of(Vec dmin, const uint8_t* scales, int half) {
    if constexpr (kFormat.scales == Scales::super32_min) return M::negate(dmin * M::load_u8(scales + 16));
    if constexpr (kFormat.scales == Scales::super16_min) return M::negate(dmin * M::load_high4(scales + 16 * half));
    return dmin;
  }

  // Dot products begin at minus the zero point times the sum of the activations.
  template <int kGroup>
  INGOT_INLINE void start(const uint8_t* minus_sums, Dots<kGroup>& dot) {
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
      if constexpr (kZero == 0) dot[u][r] = M::zero_int();
      if constexpr (kZero != 0) dot[u][r] = M::template start<log2_of(kZero)>(minus_sums + 4 * r);
    }
  }

  template <int kGroup>
  INGOT_INLINE void fold_all(const uint8_t* minus_sums, const Partials<kGroup>& partial, Dots<kGroup>& dot) {
    start<kGroup>(minus_sums, dot);
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) INGOT_UNROLL for (int u = 0; u < kUnits; ++u) dot[u][r] =
        M::fold(dot[u][r], partial[u][r]);
  }

  // One record against kGroup rows from row kRow on; d and dmin of each unit.
  template <int kRow, int kGroup>
  INGOT_INLINE void record(const uint8_t* codes, size_t next, const uint8_t* act, int lane, const Vec (&d)[kUnits],
                           const Vec (&dmin)[kUnits], Floats& acc) {
    const uint8_t* scales = codes + kFormat.code_bytes + lane;
    codes += lane * 4;
    const uint8_t* fields = act + kRows * kBlock + 4 * kRow;
    act += kRow * kBlock;
    Partials<kGroup> partial;
    Dots<kGroup> dot;
    if constexpr (!kHalves) {
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + kField, dot);
      steps<0, 0, kGroup>(codes, next, act, partial, dot);
      steps<4, 0, kGroup>(codes, next, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const Vec scale = scale_of(d[u], of_unit(scales, u, 1, next), 0);
        Vec min = {};
        if constexpr (kMins) min = min_of(dmin[u], of_unit(scales, u, 1, next), 0);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
          Vec& sum = acc[u][kRow + r];
          sum = fma(M::to_float(dot[u][r]), scale * broadcast_at(fields + 4 * r), sum);
          if constexpr (kMins) sum = fma(min, broadcast_at(fields + 2 * kField + 4 * r), sum);
        }
      }
    } else {
      Vec sum[kUnits][kGroup];
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + 3 * kField, dot);
      steps<0, 0, kGroup>(codes, next, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + 3 * kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const Vec scale = scale_of(d[u], of_unit(scales, u, 1, next), 0);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) sum[u][r] = M::to_float(dot[u][r]) * scale;
      }
      if constexpr (kFolds || kWords == 0) start<kGroup>(fields + 4 * kField, dot);
      steps<4, 4, kGroup>(codes, next, act, partial, dot);
      if constexpr (!kFolds && kWords > 0) fold_all<kGroup>(fields + 4 * kField, partial, dot);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        const Vec scale = scale_of(d[u], of_unit(scales, u, 1, next), 1);
        INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
          sum[u][r] = fma(M::to_float(dot[u][r]), scale, sum[u][r]);
          acc[u][kRow + r] = fma(sum[u][r], broadcast_at(fields + 4 * r), acc[u][kRow + r]);
        }
        if constexpr (kMins) {
          const Vec min0 = min_of(dmin[u], of_unit(scales, u, 1, next), 0),
                    min1 = min_of(dmin[u], of_unit(scales, u, 1, next), 1);
          INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
            Vec& total = acc[u][kRow + r];
            total = fma(min0, broadcast_at(fields + 5 * kField + 4 * r), total);
            total = fma(min1, broadcast_at(fields + 6 * kField + 4 * r), total);
          }
        }
      }
    }
  }

  // The fine records of some of the rows, a bit each.
  template <int kRow>
  INGOT_INLINE void fine_records(uint32_t rows, const uint8_t* codes, size_t next, const uint8_t* act, int lane,
                                 const Vec (&d)[kUnits], const Vec (&dmin)[kUnits], Floats& acc) {
    if ((rows >> kRow & 1) != 0) record<kRow, 1>(codes, next, act, lane, d, dmin, acc);
    if constexpr (kRow + 1 < kRows) fine_records<kRow + 1>(rows, codes, next, act, lane, d, dmin, acc);
  }

  // One record against all rows, some of them at a time.
  template <int kRow>
  INGOT_INLINE void all_rows(const uint8_t* codes, size_t next, const uint8_t* act, int lane, const Vec (&d)[kUnits],
                             const Vec (&dmin)[kUnits], Floats& acc) {
    constexpr int kParts = (kRows - kRow + kMost - 1) / kMost;
    constexpr int kGroup = (kRows - kRow + kParts - 1) / kParts;
    record<kRow, kGroup>(codes, next, act, lane, d, dmin, acc);
    if constexpr (kRow + kGroup < kRows) all_rows<kRow + kGroup>(codes, next, act, lane, d, dmin, acc);
  }

  // Panels [first, last) of args, as many at a time as units span.
  INGOT_INLINE void run(const TileArgs& args, int first, int last) {
    constexpr int kSpan = kUnits * kLanes > kPanelRows ? kUnits * kLanes / kPanelRows : 1;  // panels
    const size_t act_bytes = args.halves ? kRows * 60 : kRows * 44;
    const size_t next = kSpan > 1 ? args.panel_bytes : 0;
    for (int i = first; i < last; i += kSpan) {
      for (int lane = 0; lane < kPanelRows; lane += kUnits * kLanes) {
        Floats acc;
        const uint8_t* at = args.panel + static_cast<size_t>(i) * args.panel_bytes;
        const uint8_t* act = args.act;
        int64_t column = 0;
        for (int slice = 0; slice < args.slices; ++slice) {
          INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r) acc[u][r] = Vec{};
          const int64_t blocks = (args.slice_ends[slice] - column) / kBlock;
          const int64_t fine = blocks * static_cast<int64_t>(act_bytes);  // from a record to its fine one
          const uint32_t* outliers = reinterpret_cast<const uint32_t*>(act + 2 * fine);
          const uint8_t* next_act = act + 2 * fine + blocks * kRows * 4;
          for (int64_t group = blocks / kFormat.group(); group > 0; --group) {
            const uint8_t* own = (kFormat.header_bytes > 0 ? at : at + kFormat.code_bytes) + 2 * lane;
            Vec d[kUnits], dmin[kUnits];
            INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
              d[u] = load_f16(of_unit(own, u, 2, next));
              dmin[u] = kMins ? load_f16(of_unit(own + 32, u, 2, next)) : Vec{};
            }
            at += kFormat.header_bytes;
            for (int sub = 0; sub < kFormat.group(); ++sub, at += kFormat.record_bytes, act += act_bytes) {
              if constexpr (kRows >= kPrefetchRows && kSpan == 1 && !kUnpacked)
                for (int b = 0; b < kFormat.record_bytes; b += 64) __builtin_prefetch(at + kPrefetch + b);
              all_rows<0>(at, next, act, lane, d, dmin, acc);
              if (const uint32_t rows = *outliers++; rows != 0) {
                // Decoded again: the compiler would keep every record's words in memory for this.
                const uint8_t* again = at;
                asm("" : "+r"(again));
                fine_records<0>(rows, again, next, act + fine, lane, d, dmin, acc);
              }
            }
          }
          if (args.slices > 1) add_slice(slice, acc, args.waiting);
          act = next_act;
          column = args.slice_ends[slice];
        }
        float* out = args.out + i * kRows * kPanelRows + lane;
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r)
            store(out + (u * kLanes / kPanelRows * kRows + r) * kPanelRows + u * kLanes % kPanelRows, acc[u][r]);
      }
    }
  }
};

// All panels of a call. Units that span several come to panels that are in cache: from memory one stream is read faster
// than two (on a Zen 5 core four rows of q8_0 by a fifth). The last panels go by themselves where there are too few.
template <class M, DType kType, int kRows, bool kUnpacked = false>
void run_blocks(const TileArgs& args) {
  constexpr int kUnits = M::units(kRows, panel_format(kType).code_bits(), needs_halves(kType));
  if constexpr (kUnits * kLanes <= kPanelRows) {
    BlockTile<M, kType, kRows, kUnits, kUnpacked>::run(args, 0, args.panels);
  } else {
    constexpr int kSpan = kUnits * kLanes / kPanelRows;
    const int together = args.from_memory ? 0 : args.panels / kSpan * kSpan;
    BlockTile<M, kType, kRows, kUnits, kUnpacked>::run(args, 0, together);
    BlockTile<M, kType, kRows, kPanelRows / kLanes, kUnpacked>::run(args, together, args.panels);
  }
}

// Word j and those behind it of the 16 rows of a record.
template <class M, DType kType, int j>
INGOT_INLINE void unpack_words(const uint8_t* codes, uint8_t* out) {
  for (int lane = 0; lane < kPanelRows; lane += kLanes)
    M::store_codes(out + 64 * j + 4 * lane, BlockTile<M, kType, 1, 1>::template word<j>(codes + 4 * lane));
  if constexpr (j + 1 < kBlock / 4) unpack_words<M, kType, j + 1>(codes, out);
}

template <class M, DType kType>
void unpack_panel(const uint8_t* panel, int64_t blocks, uint8_t* out) {
  constexpr PanelFormat kFrom = panel_format(kType), kTo = unpacked_format(kType);
  for (int64_t block = 0; block < blocks; ++block) {
    if (kFrom.header_bytes > 0 && block % kFrom.group() == 0) {
      __builtin_memcpy(out, panel, kFrom.header_bytes);
      panel += kFrom.header_bytes;
      out += kFrom.header_bytes;
    }
    for (int b = 0; b < kFrom.record_bytes; b += 64) __builtin_prefetch(panel + kPrefetch + b);
    unpack_words<M, kType, 0>(panel, out);
    __builtin_memcpy(out + kTo.code_bytes, panel + kFrom.code_bytes, kFrom.record_bytes - kFrom.code_bytes);
    panel += kFrom.record_bytes;
    out += kTo.record_bytes;
  }
}
