// Products by smmla: one instruction multiplies 8 columns of two rows of weights with those of two rows of activations.
// Words of weights are zipped into rows as they are loaded; activations are written as pairs of rows. Included by
// kernels_neon_i8mm.cc behind tiles.h, inside its namespace. No include guard, no includes.
//
// The numbers are those of neon_dotprod: sums of integers are exact, and floats are added in the same order.

// Record of a tile: as in format.h, but the codes of rows 2q and 2q + 1 lie as [4 g][2 rows][8 columns]; a last odd row
// lies as it is, and so do fine records, which are computed a row at a time.
inline void pair_rows(uint8_t* codes, int rows) {
  for (int r = 0; r + 1 < rows; r += 2, codes += 2 * kBlock) {
    const uint8x16_t a0 = vld1q_u8(codes), a1 = vld1q_u8(codes + 16);
    const uint8x16_t b0 = vld1q_u8(codes + 32), b1 = vld1q_u8(codes + 48);
    const auto low = [](uint8x16_t a, uint8x16_t b) { return vcombine_u8(vget_low_u8(a), vget_low_u8(b)); };
    const auto high = [](uint8x16_t a, uint8x16_t b) { return vcombine_u8(vget_high_u8(a), vget_high_u8(b)); };
    vst1q_u8(codes, low(a0, b0));
    vst1q_u8(codes + 16, high(a0, b0));
    vst1q_u8(codes + 32, low(a1, b1));
    vst1q_u8(codes + 48, high(a1, b1));
  }
}

void quantize_pairs(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last,
                    bool halves, uint8_t* act) {
  quantize_rows<Machine>(in, in_stride, rows, cols, first, last, halves, act);
  const size_t record = activation_record_bytes(rows, halves);
  for (int64_t block = first; block < last; ++block) pair_rows(act + static_cast<size_t>(block) * record, rows);
}

template <DType kType, int kRows>
struct PairTile {
  using Plain =
      BlockTile<Machine, kType, kRows, Machine::units(kRows, panel_format(kType).code_bits(), needs_halves(kType))>;
  static constexpr PanelFormat kFormat = Plain::kFormat;
  static constexpr bool kHalves = Plain::kHalves, kMins = Plain::kMins;
  static constexpr int kZero = Plain::kZero;
  static constexpr int kPairs = kRows / 2;
  static constexpr bool kOdd = kRows % 2 != 0;
  static constexpr int kField = 4 * kRows;  // bytes

  // Of four rows of weights: with two rows of activations [w0x0, w0x1, w1x0, w1x1], [w2x0, ...]; with the odd one as
  // ever.
  struct Dots {
    int32x4_t low[kPairs], high[kPairs], odd;
  };

  INGOT_INLINE void start(const uint8_t* minus_sums, Dots& dots) {
    constexpr int kShift = log2_of(kZero);
    INGOT_UNROLL for (int q = 0; q < kPairs; ++q) {
      if constexpr (kZero == 0) {
        dots.low[q] = dots.high[q] = vdupq_n_s32(0);
      } else {
        const int32x2_t both = vreinterpret_s32_u8(vld1_u8(minus_sums + 8 * q));
        dots.low[q] = dots.high[q] = vshlq_n_s32(vcombine_s32(both, both), kShift);
      }
    }
    if constexpr (kOdd && kZero == 0) dots.odd = vdupq_n_s32(0);
    if constexpr (kOdd && kZero != 0) dots.odd = Machine::ints(Machine::start<kShift>(minus_sums + 8 * kPairs));
  }

  // Words 2g and 2g + 1: 8 columns.
  template <int g>
  INGOT_INLINE void step(const uint8_t* codes, const uint8_t* act, Dots& dots) {
    const uint8x16_t a = Plain::template word<2 * g>(codes), b = Plain::template word<2 * g + 1>(codes);
    const int32x4_t a4 = Machine::ints(a), b4 = Machine::ints(b);
    const int8x16_t low = vreinterpretq_s8_s32(vzip1q_s32(a4, b4)), high = vreinterpretq_s8_s32(vzip2q_s32(a4, b4));
    INGOT_UNROLL for (int q = 0; q < kPairs; ++q) {
      const int8x16_t x = Machine::load_x(act + q * 2 * kBlock + g * 16);
      dots.low[q] = vmmlaq_s32(dots.low[q], low, x);
      dots.high[q] = vmmlaq_s32(dots.high[q], high, x);
    }
    if constexpr (kOdd) {
      const int8x16_t x = Machine::load_x(act + kPairs * 2 * kBlock + g / 2 * 16);
      dots.odd = vdotq_laneq_s32(dots.odd, vreinterpretq_s8_u8(a), x, 2 * g % 4);
      dots.odd = vdotq_laneq_s32(dots.odd, vreinterpretq_s8_u8(b), x, 2 * g % 4 + 1);
    }
  }

  // Of row r, for four rows of weights.
  INGOT_INLINE Vec sum_of(const Dots& dots, int r) {
    if (r == 2 * kPairs) return vcvtq_f32_s32(dots.odd);
    const int32x4_t low = dots.low[r / 2], high = dots.high[r / 2];
    return vcvtq_f32_s32(r % 2 == 0 ? vuzp1q_s32(low, high) : vuzp2q_s32(low, high));
  }

  INGOT_INLINE void record(const uint8_t* codes, const uint8_t* act, int lane, Vec d, Vec dmin, Vec (&acc)[kRows]) {
    const uint8_t* fields = act + kRows * kBlock;
    const uint8_t* scales = codes + kFormat.code_bytes + lane;
    for (int i = 0; i < kFormat.record_bytes; i += 64) __builtin_prefetch(codes + kPrefetch + i);
    codes += lane * 4;
    Dots dots;
    if constexpr (!kHalves) {
      start(fields + kField, dots);
      step<0>(codes, act, dots);
      step<1>(codes, act, dots);
      step<2>(codes, act, dots);
      step<3>(codes, act, dots);
      const Vec scale = Plain::scale_of(d, scales, 0);
      INGOT_UNROLL for (int r = 0; r < kRows; ++r) acc[r] =
          fma(sum_of(dots, r), scale * broadcast_at(fields + 4 * r), acc[r]);
      if constexpr (kMins) {
        const Vec min = Plain::min_of(dmin, scales, 0);
        INGOT_UNROLL for (int r = 0; r < kRows; ++r) acc[r] =
            fma(min, broadcast_at(fields + 2 * kField + 4 * r), acc[r]);
      }
    } else {
      Vec sum[kRows];
      start(fields + 3 * kField, dots);
      step<0>(codes, act, dots);
      step<1>(codes, act, dots);
      const Vec scale0 = Plain::scale_of(d, scales, 0), scale1 = Plain::scale_of(d, scales, 1);
      INGOT_UNROLL for (int r = 0; r < kRows; ++r) sum[r] = sum_of(dots, r) * scale0;
      start(fields + 4 * kField, dots);
      step<2>(codes, act, dots);
      step<3>(codes, act, dots);
      INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
        sum[r] = fma(sum_of(dots, r), scale1, sum[r]);
        acc[r] = fma(sum[r], broadcast_at(fields + 4 * r), acc[r]);
      }
      if constexpr (kMins) {
        const Vec min0 = Plain::min_of(dmin, scales, 0), min1 = Plain::min_of(dmin, scales, 1);
        INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
          acc[r] = fma(min0, broadcast_at(fields + 5 * kField + 4 * r), acc[r]);
          acc[r] = fma(min1, broadcast_at(fields + 6 * kField + 4 * r), acc[r]);
        }
      }
    }
  }

  // Words j..j+3 of one row, whose codes from word j on are x's.
  template <int j>
  INGOT_INLINE Machine::I row_words(Machine::I dot, const uint8_t* codes, const uint8_t* act) {
    const Machine::X x = Machine::load_x(act + 4 * j);
    dot = Machine::dot<0>(dot, Plain::template word<j>(codes), x);
    dot = Machine::dot<1>(dot, Plain::template word<j + 1>(codes), x);
    dot = Machine::dot<2>(dot, Plain::template word<j + 2>(codes), x);
    return Machine::dot<3>(dot, Plain::template word<j + 3>(codes), x);
  }
  INGOT_INLINE Machine::I row_start(const uint8_t* minus_sum) {
    if constexpr (kZero == 0) return Machine::zero_int();
    if constexpr (kZero != 0) return Machine::start<log2_of(kZero)>(minus_sum);
  }

  // The fine record of row kRow.
  template <int kRow>
  INGOT_INLINE void fine_record(const uint8_t* codes, const uint8_t* act, int lane, Vec d, Vec dmin, Vec& acc) {
    const uint8_t* fields = act + kRows * kBlock + 4 * kRow;
    const uint8_t* scales = codes + kFormat.code_bytes + lane;
    codes += lane * 4;
    act += kRow * kBlock;
    if constexpr (!kHalves) {
      Machine::I dot = row_words<0>(row_start(fields + kField), codes, act);
      dot = row_words<4>(dot, codes, act);
      acc = fma(Machine::to_float(dot), Plain::scale_of(d, scales, 0) * broadcast_at(fields), acc);
      if constexpr (kMins) acc = fma(Plain::min_of(dmin, scales, 0), broadcast_at(fields + 2 * kField), acc);
    } else {
      const Machine::I low = row_words<0>(row_start(fields + 3 * kField), codes, act);
      const Machine::I high = row_words<4>(row_start(fields + 4 * kField), codes, act);
      Vec sum = Machine::to_float(low) * Plain::scale_of(d, scales, 0);
      sum = fma(Machine::to_float(high), Plain::scale_of(d, scales, 1), sum);
      acc = fma(sum, broadcast_at(fields), acc);
      if constexpr (kMins) {
        acc = fma(Plain::min_of(dmin, scales, 0), broadcast_at(fields + 5 * kField), acc);
        acc = fma(Plain::min_of(dmin, scales, 1), broadcast_at(fields + 6 * kField), acc);
      }
    }
  }

  // Those of some of the rows, a bit each.
  template <int kRow>
  INGOT_INLINE void fine_records(uint32_t rows, const uint8_t* codes, const uint8_t* act, int lane, Vec d, Vec dmin,
                                 Vec (&acc)[kRows]) {
    if ((rows >> kRow & 1) != 0) fine_record<kRow>(codes, act, lane, d, dmin, acc[kRow]);
    if constexpr (kRow + 1 < kRows) fine_records<kRow + 1>(rows, codes, act, lane, d, dmin, acc);
  }

  static void run(const TileArgs& args) {
    const size_t act_bytes = activation_record_bytes(kRows, args.halves);
    for (int i = 0; i < args.panels; ++i) {
      for (int lane = 0; lane < kPanelRows; lane += kLanes) {
        Vec acc[1][kRows];
        const uint8_t* at = args.panel + static_cast<size_t>(i) * args.panel_bytes;
        const uint8_t* act = args.act;
        int64_t column = 0;
        for (int slice = 0; slice < args.slices; ++slice) {
          INGOT_UNROLL for (int r = 0; r < kRows; ++r) acc[0][r] = Vec{};
          const int64_t blocks = (args.slice_ends[slice] - column) / kBlock;
          const int64_t fine = blocks * static_cast<int64_t>(act_bytes);
          const uint32_t* outliers = reinterpret_cast<const uint32_t*>(act + 2 * fine);
          const uint8_t* next = act + 2 * fine + blocks * kRows * 4;
          for (int64_t group = blocks / kFormat.group(); group > 0; --group) {
            const uint8_t* own = (kFormat.header_bytes > 0 ? at : at + kFormat.code_bytes) + 2 * lane;
            const Vec d = load_f16(own), dmin = kMins ? load_f16(own + 32) : Vec{};
            at += kFormat.header_bytes;
            for (int sub = 0; sub < kFormat.group(); ++sub, at += kFormat.record_bytes, act += act_bytes) {
              record(at, act, lane, d, dmin, acc[0]);
              if (const uint32_t rows = *outliers++; rows != 0)
                fine_records<0>(rows, at, act + fine, lane, d, dmin, acc[0]);
            }
          }
          if (args.slices > 1) add_slice(slice, acc, args.waiting);
          act = next;
          column = args.slice_ends[slice];
        }
        float* out = args.out + i * kRows * kPanelRows + lane;
        INGOT_UNROLL for (int r = 0; r < kRows; ++r) store(out + r * kPanelRows, acc[0][r]);
      }
    }
  }
};

template <DType kType, int kRows>
constexpr void add_pair_tiles(KernelTable& table) {
  if constexpr (!is_float_format(kType)) table.tile[static_cast<int>(kType)][kRows - 1] = PairTile<kType, kRows>::run;
  if constexpr (kRows > 2) add_pair_tiles<kType, kRows - 1>(table);
}
template <int kType>
constexpr void add_pair_types(KernelTable& table) {
  add_pair_tiles<static_cast<DType>(kType), Machine::kMaxTile>(table);
  if constexpr (kType + 1 < kNumDTypes) add_pair_types<kType + 1>(table);
}
constexpr KernelTable with_pairs() {
  KernelTable table = make_table<Machine>();
  table.quantize = quantize_pairs;
  add_pair_types<0>(table);
  return table;
}
constinit const KernelTable kPairTable = with_pairs();
