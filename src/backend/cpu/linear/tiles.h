// The kernels, written once over a vector type V, which each ISA defines as Vec. Included by kernels_*.cc only, inside
// their own namespace: every function here has internal linkage there. No include guard, no includes.
//
// V provides:
//   kLanes         output rows a vector; a panel has 16
//   kMaxTile       most activation rows of a tile
//   kSigned8       8-bit codes are multiplied signed (stored value - 128), so they need no zero point
//   I, F, X, P     integers, floats, four activation words of a row, a partial dot product
//   kWords<bits>   how many words a P may add up before it must go to int32 lanes, for codes of that many bits; 0:
//   there
//                  is no P, dot products go straight to int32
//   units(rows, bits, halves)   how many vectors of a panel, or of panels behind each other, are worked on together,
//   for
//                  codes of that many bits, with one or two scales a record
//   unpacks(format)             whether the codes of a panel are taken apart for products with many tiles
//   rows_at_once(rows, units, halves)   of how many rows dot products are under way together
//   kFloatRows, float_units(rows)       the same for plain numbers
//   kManyBlocks    of so many blocks V quantizes a row of activations together; 1: it does not
//   keep(sum)      nothing, or what makes the compiler leave a sum where it is written
// and the functions used below. Accumulation goes along k, block by block, in one fixed order for every tile size;
// where columns are cut into slices, each begins at zero, and they are added two by two.

// With more than a few rows the work between two loads of weights takes so long that the processor does not look far
// enough ahead by itself: they are asked for this many bytes before. With one or two it does, and asking is in its way
// (on a Zen 4 core one row reads q8_0 at 21 instead of 28 GB/s).
constexpr int kPrefetch = 2048;
constexpr int kPrefetchRows = 3;  // from so many rows on

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

// Slice `slice` is in acc; adds it to its neighbours that are there already. After the last one acc is
// (0 + 1) + (2 + 3). waiting: a slice, and the sum of two, that wait for their neighbour; in memory, so that they take
// no registers from the loops.
template <class V, int kUnits, int kRows>
INGOT_INLINE void add_slice(int slice, typename V::F (&acc)[kUnits][kRows], float* waiting) {
  constexpr int kFloats = kUnits * kRows * V::kLanes;
  for (int level = 0; level < 2; ++level, waiting += kFloats) {
    const bool last = (slice >> level & 1) == 0;
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
      float* at = waiting + (u * kRows + r) * V::kLanes;
      if (last) {
        V::store(at, acc[u][r]);
      } else {
        acc[u][r] = V::add(V::load_float(at), acc[u][r]);
      }
    }
    if (last) return;
  }
}

#include "backend/cpu/linear/block_tile.h"

// f32, f16 and bf16 weights, widened. Two sums, over even and over odd columns. Tiles of more rows than registers have
// room for are worked on a part of the rows after another.
template <class V, DType kType, int kRows>
struct FloatTile {
  using F = typename V::F;
  static constexpr int kPairBytes = kType == DType::f32 ? 128 : 64;
  static constexpr int kLaneBytes = kType == DType::f16 ? 2 : 4;
  template <int kUnits, int kGroup>
  using Floats = F[kUnits][kGroup];

  // Column k or k + 1 of kLanes rows.
  template <bool kOdd>
  INGOT_INLINE F load(const uint8_t* codes) {
    if constexpr (kType == DType::f32) {
      return V::load_float(codes + (kOdd ? 64 : 0));
    } else if constexpr (kType == DType::f16) {
      return V::load_half(codes + (kOdd ? 32 : 0));
    } else {
      return kOdd ? V::load_bf16_odd(codes) : V::load_bf16_even(codes);
    }
  }

  template <bool kOdd, int kUnits, int kGroup>
  INGOT_INLINE void step(const uint8_t* at, const float* in, int64_t in_stride, Floats<kUnits, kGroup>& acc) {
    F w[kUnits];
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) w[u] = load<kOdd>(at + u * V::kLanes * kLaneBytes);
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
      const F x = V::broadcast(in + r * in_stride + kOdd);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        F sum = V::fma(w[u], x, acc[u][r]);
        V::keep(sum);
        acc[u][r] = sum;
      }
    }
  }

  // Rows kFirst.. of a panel.
  template <int kFirst, int kGroup>
  INGOT_INLINE void rows(const TileArgs& args, const uint8_t* panel, float* out) {
    constexpr int kUnits = V::float_units(kGroup);
    const float* in = args.in + kFirst * args.in_stride;
    for (int lane = 0; lane < kPanelRows; lane += kUnits * V::kLanes) {
      Floats<kUnits, kGroup> even_acc, odd_acc;
      const uint8_t* at = panel + lane * kLaneBytes;
      int64_t k = 0;
      for (int slice = 0; slice < args.slices; ++slice) {  // all of them begin at even columns
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r) even_acc[u][r] =
            odd_acc[u][r] = V::zero();
        const int64_t end = args.slice_ends[slice];
        for (; k + 2 <= end; k += 2, at += kPairBytes) {
          if constexpr (kRows >= kPrefetchRows && kFirst == 0)
            for (int b = 0; b < kPairBytes; b += 64) __builtin_prefetch(at + kPrefetch + b);
          step<false, kUnits, kGroup>(at, in + k, args.in_stride, even_acc);
          step<true, kUnits, kGroup>(at, in + k, args.in_stride, odd_acc);
        }
        if (k < end) step<false, kUnits, kGroup>(at, in + k, args.in_stride, even_acc);
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r) even_acc[u][r] =
            V::add(even_acc[u][r], odd_acc[u][r]);
        if (args.slices > 1) add_slice<V>(slice, even_acc, args.waiting);
      }
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r)
          V::store(out + (kFirst + r) * kPanelRows + lane + u * V::kLanes, even_acc[u][r]);
    }
    if constexpr (kFirst + kGroup < kRows) rows_from<kFirst + kGroup>(args, panel, out);
  }
  template <int kFirst>
  INGOT_INLINE void rows_from(const TileArgs& args, const uint8_t* panel, float* out) {
    constexpr int kLeft = (kRows - kFirst + V::kFloatRows - 1) / V::kFloatRows;  // parts
    rows<kFirst, (kRows - kFirst + kLeft - 1) / kLeft>(args, panel, out);
  }

  static void run(const TileArgs& args) {
    for (int i = 0; i < args.panels; ++i)
      rows_from<0>(args, args.panel + static_cast<size_t>(i) * args.panel_bytes, args.out + i * kRows * kPanelRows);
  }
};

// ---- epilogue -------------------------------------------------------------------------------------------------------

// e^x to about 1e-7 relative, x clamped to where the result is a normal number.
template <class V, class F>
INGOT_INLINE F exp_of(F x) {
  x = V::min(V::max(x, V::set(-87.0f)), V::set(88.0f));
  const F n = V::round(V::mul(x, V::set(1.44269504f)));
  F r = V::fma(n, V::set(-0.693145752f), x);  // ln 2 in two parts, the first with few bits
  r = V::fma(n, V::set(-1.42860677e-6f), r);
  F p = V::set(1.0f / 720);
  p = V::fma(p, r, V::set(1.0f / 120));
  p = V::fma(p, r, V::set(1.0f / 24));
  p = V::fma(p, r, V::set(1.0f / 6));
  p = V::fma(p, r, V::set(0.5f));
  p = V::fma(p, r, V::set(1.0f));
  p = V::fma(p, r, V::set(1.0f));
  return V::scale_by_power(p, n);
}

template <class V, StoreKind kKind, class F>
INGOT_INLINE F activate(F x) {
  const F one = V::set(1.0f);
  if constexpr (kKind == StoreKind::silu) {
    return V::div(x, V::add(one, exp_of<V>(V::negate(x))));
  } else if constexpr (kKind == StoreKind::gelu_tanh) {
    // (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    const F inner = V::fma(V::mul(V::mul(x, x), V::set(0.044715f)), x, x);
    return V::div(x, V::add(one, exp_of<V>(V::mul(inner, V::set(-1.5957691216f)))));
  } else {
    // erfc(z) = t (a1 + t (a2 + ...)) e^-z^2 for z >= 0, t = 1 / (1 + p z): Abramowitz and Stegun 7.1.26
    const F z = V::mul(V::abs(x), V::set(0.70710678119f));
    const F t = V::div(one, V::fma(z, V::set(0.3275911f), one));
    F p = V::set(1.061405429f);
    p = V::fma(p, t, V::set(-1.453152027f));
    p = V::fma(p, t, V::set(1.421413741f));
    p = V::fma(p, t, V::set(-0.284496736f));
    p = V::fma(p, t, V::set(0.254829592f));
    const F tail = V::mul(V::mul(p, t), exp_of<V>(V::negate(V::mul(z, z))));
    const F half_x = V::mul(x, V::set(0.5f));
    return V::mul(half_x, V::select_negative(x, tail, V::sub(V::set(2.0f), tail)));
  }
}

// 16 columns of a row; any of them may be padding when they lie in local arrays.
template <class V, StoreKind kKind>
INGOT_INLINE void store_16(const float* tile, const float* gate_tile, const float* bias, const float* gate_bias,
                           float* out) {
  for (int at = 0; at < kPanelRows; at += V::kLanes) {
    auto v = V::load_float(tile + at);
    if (bias != nullptr) v = V::add(v, V::load_float(bias + at));
    if constexpr (kKind == StoreKind::add) v = V::add(V::load_float(out + at), v);
    if constexpr (kKind != StoreKind::add && kKind != StoreKind::set) {
      if (gate_tile == nullptr) {
        v = activate<V, kKind>(v);
      } else {
        auto gate = V::load_float(gate_tile + at);
        if (gate_bias != nullptr) gate = V::add(gate, V::load_float(gate_bias + at));
        v = V::mul(activate<V, kKind>(gate), v);
      }
    }
    V::store(out + at, v);
  }
}

template <class V, StoreKind kKind>
void store_tile(const StoreArgs& args) {
  const int tail = args.cols % kPanelRows, whole = args.cols - tail;
  float tail_bias[kPanelRows] = {}, tail_gate_bias[kPanelRows] = {}, tail_out[kPanelRows] = {};
  for (int i = 0; i < tail; ++i) {
    if (args.bias != nullptr) tail_bias[i] = args.bias[whole + i];
    if (args.gate_bias != nullptr) tail_gate_bias[i] = args.gate_bias[whole + i];
  }
  for (int r = 0; r < args.rows; ++r) {
    float* out = args.out + r * args.out_stride;
    const float* tile = args.tile + r * kPanelRows;
    const float* gate_tile = args.gate_tile == nullptr ? nullptr : args.gate_tile + r * kPanelRows;
    for (int col = 0; col < whole; col += kPanelRows) {
      store_16<V, kKind>(tile, gate_tile, args.bias == nullptr ? nullptr : args.bias + col,
                         args.gate_bias == nullptr ? nullptr : args.gate_bias + col, out + col);
      tile += args.rows * kPanelRows;
      if (gate_tile != nullptr) gate_tile += args.rows * kPanelRows;
    }
    if (tail == 0) continue;
    for (int i = 0; i < tail; ++i) tail_out[i] = out[whole + i];
    store_16<V, kKind>(tile, gate_tile, tail_bias, tail_gate_bias, tail_out);
    for (int i = 0; i < tail; ++i) out[whole + i] = tail_out[i];
  }
}

// ---- activations ----------------------------------------------------------------------------------------------------

// The numbers of a record beside its codes: d, which is given, and the sums of the codes of its halves.
INGOT_INLINE void put_numbers(float d, int32_t low, int32_t high, int r, int rows, bool halves, uint8_t* record) {
  const int32_t sum = low + high;
  float* floats = reinterpret_cast<float*>(record + rows * kBlock);
  int32_t* ints = reinterpret_cast<int32_t*>(floats);
  floats[r] = d;
  ints[rows + r] = -sum;
  floats[2 * rows + r] = d * static_cast<float>(sum);
  if (halves) {
    ints[3 * rows + r] = -low;
    ints[4 * rows + r] = -high;
    floats[5 * rows + r] = d * static_cast<float>(low);
    floats[6 * rows + r] = d * static_cast<float>(high);
  }
}

constexpr float kLeastLargest = 1e-30f;  // a block of smaller values is taken for zeros

// Row r of one record, from 32 values whose largest magnitude is `largest`.
template <class V>
INGOT_INLINE void quantize_record(const float* x, float largest, int r, int rows, bool halves, uint8_t* out) {
  const float inverse = largest > kLeastLargest ? 127.0f / largest : 0.0f;
  int32_t low, high;
  V::quantize_32(x, inverse, reinterpret_cast<int8_t*>(out + r * kBlock), low, high);
  put_numbers(largest * (1.0f / 127.0f), low, high, r, rows, halves, out);
}

// Row r of kManyBlocks consecutive records: the same numbers, by instructions that work on all of them.
template <class V>
INGOT_INLINE void quantize_many(const float* x, const float* largest, int r, int rows, bool halves, size_t record,
                                uint8_t* out) {
  constexpr int kMany = V::kManyBlocks;
  float d[kMany], inverse[kMany];
  int32_t low[kMany], high[kMany];
  for (int i = 0; i < kMany; i += V::kLanes) {
    const auto most = V::load_float(largest + i);
    V::store(d + i, V::mul(most, V::set(1.0f / 127.0f)));
    V::store(inverse + i,
             V::select_negative(V::sub(V::set(kLeastLargest), most), V::div(V::set(127.0f), most), V::zero()));
  }
  V::quantize_many(x, inverse, out + r * kBlock, record, low, high);
  for (int i = 0; i < kMany; ++i) put_numbers(d[i], low[i], high[i], r, rows, halves, out + i * record);
}

// Above this a block is an outlier's: kOutlier times the root mean square of the row, squared. Of kRows rows.
template <class V, int kRows>
INGOT_INLINE void outlier_squares(const float* x, int64_t stride, int64_t cols, float* out) {
  typename V::F sums[kRows];
  INGOT_UNROLL for (int r = 0; r < kRows; ++r) sums[r] = V::zero();
  for (int64_t k = 0; k < cols; k += V::kLanes)
    INGOT_UNROLL for (int r = 0; r < kRows; ++r) sums[r] =
        V::fma(V::load_float(x + r * stride + k), V::load_float(x + r * stride + k), sums[r]);
  INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
    float lanes[V::kLanes];
    V::store(lanes, sums[r]);
    float total = 0.0f;
    for (int i = 0; i < V::kLanes; ++i) total += lanes[i];
    out[r] = total / static_cast<float>(cols) * (kOutlier * kOutlier);
  }
}

template <class V>
void quantize_rows(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last, bool halves,
                   uint8_t* act) {
  constexpr int kMany = V::kManyBlocks;
  const size_t record = static_cast<size_t>(rows) * (halves ? 60 : 44);
  const size_t fine = static_cast<size_t>(cols / kBlock) * record;
  uint32_t* outlier_rows = reinterpret_cast<uint32_t*>(act + 2 * fine);
  float limit[kMaxTileRows];
  int done = 0;
  for (; done + 4 <= rows; done += 4) outlier_squares<V, 4>(in + done * in_stride, in_stride, cols, limit + done);
  for (; done < rows; ++done) outlier_squares<V, 1>(in + done * in_stride, in_stride, cols, limit + done);
  for (int64_t block = first; block < last;) {
    const int count = static_cast<int>(last - block < kMany ? last - block : kMany);
    uint8_t* out = act + static_cast<size_t>(block) * record;
    uint32_t outliers[kMany] = {};  // of each block; a bit a row
    for (int r = 0; r < rows; ++r) {
      const float* x = in + r * in_stride + block * kBlock;
      float largest[kMany];
      int done_blocks = 0;
      if constexpr (kMany > 1) {
        if (count == kMany) {
          V::largest_of_many(x, largest);
          quantize_many<V>(x, largest, r, rows, halves, record, out);
          done_blocks = count;
        }
      }
      for (int i = done_blocks; i < count; ++i) {
        largest[i] = V::largest_of_32(x + i * kBlock);
        quantize_record<V>(x + i * kBlock, largest[i], r, rows, halves, out + i * record);
      }
      uint32_t found = 0;  // a bit a block
      for (int i = 0; i < count; ++i) found |= static_cast<uint32_t>(largest[i] * largest[i] > limit[r]) << i;
      for (; found != 0; found &= found - 1) {
        const int i = __builtin_ctz(found);
        outliers[i] |= uint32_t{1} << r;
        const int8_t* codes = reinterpret_cast<const int8_t*>(out + i * record + r * kBlock);
        const float d = reinterpret_cast<const float*>(out + i * record + rows * kBlock)[r];
        float rest[kBlock];
        for (int k = 0; k < kBlock; ++k) rest[k] = x[i * kBlock + k] - d * static_cast<float>(codes[k]);
        quantize_record<V>(rest, V::largest_of_32(rest), r, rows, halves, out + i * record + fine);
      }
    }
    for (int i = 0; i < count; ++i) outlier_rows[block + i] = outliers[i];
    block += count;
  }
}

// ---- the table ------------------------------------------------------------------------------------------------------

template <class V, DType kType, int kRows>
constexpr void add_tiles(KernelTable& table) {
  if constexpr (is_float_format(kType)) {
    table.tile[static_cast<int>(kType)][kRows - 1] = FloatTile<V, kType, kRows>::run;
  } else {
    table.tile[static_cast<int>(kType)][kRows - 1] = run_blocks<V, kType, kRows>;
  }
  if constexpr (kRows + 1 >= V::kMaxTile && V::unpacks(panel_format(kType))) {
    table.unpack[static_cast<int>(kType)] = unpack_panel<V, kType>;
    table.unpacked_tile[static_cast<int>(kType)][kRows - 1] = run_blocks<V, kType, kRows, true>;
  }
  if constexpr (kRows > 1) add_tiles<V, kType, kRows - 1>(table);
}

template <class V, int kType>
constexpr void add_types(KernelTable& table) {
  add_tiles<V, static_cast<DType>(kType), V::kMaxTile>(table);
  if constexpr (kType + 1 < kNumDTypes) add_types<V, kType + 1>(table);
}

template <class V>
constexpr KernelTable make_table() {
  KernelTable table = {};
  table.max_tile = V::kMaxTile;
  table.quantize = quantize_rows<V>;
  add_types<V, 0>(table);
  table.store[static_cast<int>(StoreKind::set)] = store_tile<V, StoreKind::set>;
  table.store[static_cast<int>(StoreKind::add)] = store_tile<V, StoreKind::add>;
  table.store[static_cast<int>(StoreKind::silu)] = store_tile<V, StoreKind::silu>;
  table.store[static_cast<int>(StoreKind::gelu_tanh)] = store_tile<V, StoreKind::gelu_tanh>;
  table.store[static_cast<int>(StoreKind::gelu)] = store_tile<V, StoreKind::gelu>;
  return table;
}

constinit const KernelTable kTable = make_table<Vec>();
