// The kernels, written once over the vectors of simd/ and over M, what products need beside of an ISA's machine, which
// machine_*.h defines as Machine. Included by kernels_*.cc only, inside their own namespace: every function here has
// internal linkage there. No include guard, no includes.
//
// A vector's lanes are kLanes output rows; a panel has 16. M provides:
//   kMaxTile       most activation rows of a tile
//   kSigned8       8-bit codes are multiplied signed (stored value - 128), so they need no zero point
//   I, X, P        integers (bytes, or as many int32 as a vector has lanes), four activation words of a row, a partial
//                  dot product
//   kWords<bits>   how many words a P may add up before it must go to int32 lanes, for codes of that many bits; 0:
//                  there is no P, dot products go straight to int32
//   units(rows, bits, halves)   how many vectors of a panel, or of panels behind each other, are worked on together,
//                  for codes of that many bits, with one or two scales a record
//   unpacks(format)             whether the codes of a panel are taken apart for products with many tiles
//   rows_at_once(rows, units, halves)   of how many rows dot products are under way together
//   kFloatRows, float_units(rows)       the same for plain numbers
//   kManyBlocks    of so many blocks M quantizes a row of activations together; 1: it does not
//   keep(sum)      nothing, or what makes the compiler leave a sum where it is written
// and the functions used below. Accumulation goes along k, block by block, in one fixed order for every tile size;
// where columns are cut into slices, each begins at zero, and they are added two by two.

// With more than a few rows the work between two loads of weights takes so long that the processor does not look far
// enough ahead by itself: they are asked for this many bytes before. With one or two it does, and asking is in its way
// (on a Zen 4 core one row reads q8_0 at 21 instead of 28 GB/s).
constexpr int kPrefetch = 2048;
constexpr int kPrefetchRows = 3;  // from so many rows on

constexpr int log2_of(int n) { return n <= 1 ? 0 : 1 + log2_of(n / 2); }

INGOT_INLINE Vec broadcast_at(const void* p) { return broadcast(*static_cast<const AnyFloat*>(p)); }

#include "backend/cpu/linear/add_slice.h"
#include "backend/cpu/linear/block_tile.h"

// f32, f16 and bf16 weights, widened. Two sums, over even and over odd columns. Tiles of more rows than registers have
// room for are worked on a part of the rows after another.
template <class M, DType kType, int kRows>
struct FloatTile {
  static constexpr int kPairBytes = kType == DType::f32 ? 128 : 64;
  static constexpr int kLaneBytes = kType == DType::f16 ? 2 : 4;
  template <int kUnits, int kGroup>
  using Floats = Vec[kUnits][kGroup];

  // Column k or k + 1 of kLanes rows.
  template <bool kOdd>
  INGOT_INLINE Vec column(const uint8_t* codes) {
    if constexpr (kType == DType::f32) {
      return load(codes + (kOdd ? 64 : 0));
    } else if constexpr (kType == DType::f16) {
      return load_f16(codes + (kOdd ? 32 : 0));
    } else {
      return kOdd ? M::load_bf16_odd(codes) : M::load_bf16_even(codes);
    }
  }

  template <bool kOdd, int kUnits, int kGroup>
  INGOT_INLINE void step(const uint8_t* at, const float* in, int64_t in_stride, Floats<kUnits, kGroup>& acc) {
    Vec w[kUnits];
    INGOT_UNROLL for (int u = 0; u < kUnits; ++u) w[u] = column<kOdd>(at + u * kLanes * kLaneBytes);
    INGOT_UNROLL for (int r = 0; r < kGroup; ++r) {
      const Vec x = broadcast(in[r * in_stride + kOdd]);
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) {
        Vec sum = fma(w[u], x, acc[u][r]);
        M::keep(sum);
        acc[u][r] = sum;
      }
    }
  }

  // Rows kFirst.. of a panel.
  template <int kFirst, int kGroup>
  INGOT_INLINE void rows(const TileArgs& args, const uint8_t* panel, float* out) {
    constexpr int kUnits = M::float_units(kGroup);
    const float* in = args.in + kFirst * args.in_stride;
    for (int lane = 0; lane < kPanelRows; lane += kUnits * kLanes) {
      Floats<kUnits, kGroup> even_acc, odd_acc;
      const uint8_t* at = panel + lane * kLaneBytes;
      int64_t k = 0;
      for (int slice = 0; slice < args.slices; ++slice) {  // all of them begin at even columns
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r) even_acc[u][r] =
            odd_acc[u][r] = Vec{};
        const int64_t end = args.slice_ends[slice];
        for (; k + 2 <= end; k += 2, at += kPairBytes) {
          if constexpr (kRows >= kPrefetchRows && kFirst == 0)
            for (int b = 0; b < kPairBytes; b += 64) __builtin_prefetch(at + kPrefetch + b);
          step<false, kUnits, kGroup>(at, in + k, args.in_stride, even_acc);
          step<true, kUnits, kGroup>(at, in + k, args.in_stride, odd_acc);
        }
        if (k < end) step<false, kUnits, kGroup>(at, in + k, args.in_stride, even_acc);
        INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r) even_acc[u][r] +=
            odd_acc[u][r];
        if (args.slices > 1) add_slice(slice, even_acc, args.waiting);
      }
      INGOT_UNROLL for (int u = 0; u < kUnits; ++u) INGOT_UNROLL for (int r = 0; r < kGroup; ++r)
          store(out + (kFirst + r) * kPanelRows + lane + u * kLanes, even_acc[u][r]);
    }
    if constexpr (kFirst + kGroup < kRows) rows_from<kFirst + kGroup>(args, panel, out);
  }
  template <int kFirst>
  INGOT_INLINE void rows_from(const TileArgs& args, const uint8_t* panel, float* out) {
    constexpr int kLeft = (kRows - kFirst + M::kFloatRows - 1) / M::kFloatRows;  // parts
    rows<kFirst, (kRows - kFirst + kLeft - 1) / kLeft>(args, panel, out);
  }

  static void run(const TileArgs& args) {
    for (int i = 0; i < args.panels; ++i)
      rows_from<0>(args, args.panel + static_cast<size_t>(i) * args.panel_bytes, args.out + i * kRows * kPanelRows);
  }
};

// ---- epilogue -------------------------------------------------------------------------------------------------------

// e^x to about 1e-7 relative, x clamped to where the result is a normal number.
template <class M>
INGOT_INLINE Vec exp_of(Vec x) {
  x = M::min(M::max(x, broadcast(-87.0f)), broadcast(88.0f));
  const Vec n = M::round(x * broadcast(1.44269504f));
  Vec r = fma(n, broadcast(-0.693145752f), x);  // ln 2 in two parts, the first with few bits
  r = fma(n, broadcast(-1.42860677e-6f), r);
  Vec p = broadcast(1.0f / 720);
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return M::scale_by_power(p, n);
}

template <class M, StoreKind kKind>
INGOT_INLINE Vec activate(Vec x) {
  const Vec one = broadcast(1.0f);
  if constexpr (kKind == StoreKind::silu) {
    return x / (one + exp_of<M>(M::negate(x)));
  } else if constexpr (kKind == StoreKind::gelu_tanh) {
    // (1 + tanh u) / 2 = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
    const Vec inner = fma(x * x * broadcast(0.044715f), x, x);
    return x / (one + exp_of<M>(inner * broadcast(-1.5957691216f)));
  } else {
    // erfc(z) = t (a1 + t (a2 + ...)) e^-z^2 for z >= 0, t = 1 / (1 + p z): Abramowitz and Stegun 7.1.26
    const Vec z = M::abs(x) * broadcast(0.70710678119f);
    const Vec t = one / fma(z, broadcast(0.3275911f), one);
    Vec p = broadcast(1.061405429f);
    p = fma(p, t, broadcast(-1.453152027f));
    p = fma(p, t, broadcast(1.421413741f));
    p = fma(p, t, broadcast(-0.284496736f));
    p = fma(p, t, broadcast(0.254829592f));
    const Vec tail = p * t * exp_of<M>(M::negate(z * z));
    return x * broadcast(0.5f) * M::select_negative(x, tail, broadcast(2.0f) - tail);
  }
}

// 16 columns of a row; any of them may be padding when they lie in local arrays.
template <class M, StoreKind kKind>
INGOT_INLINE void store_16(const float* tile, const float* gate_tile, const float* bias, const float* gate_bias,
                           float* out) {
  for (int at = 0; at < kPanelRows; at += kLanes) {
    Vec v = load(tile + at);
    if (bias != nullptr) v += load(bias + at);
    if constexpr (kKind == StoreKind::add) v = load(out + at) + v;
    if constexpr (kKind != StoreKind::add && kKind != StoreKind::set) {
      if (gate_tile == nullptr) {
        v = activate<M, kKind>(v);
      } else {
        Vec gate = load(gate_tile + at);
        if (gate_bias != nullptr) gate += load(gate_bias + at);
        v = activate<M, kKind>(gate) * v;
      }
    }
    store(out + at, v);
  }
}

template <class M, StoreKind kKind>
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
      store_16<M, kKind>(tile, gate_tile, args.bias == nullptr ? nullptr : args.bias + col,
                         args.gate_bias == nullptr ? nullptr : args.gate_bias + col, out + col);
      tile += args.rows * kPanelRows;
      if (gate_tile != nullptr) gate_tile += args.rows * kPanelRows;
    }
    if (tail == 0) continue;
    for (int i = 0; i < tail; ++i) tail_out[i] = out[whole + i];
    store_16<M, kKind>(tile, gate_tile, tail_bias, tail_gate_bias, tail_out);
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
template <class M>
INGOT_INLINE void quantize_record(const float* x, float largest, int r, int rows, bool halves, uint8_t* out) {
  const float inverse = largest > kLeastLargest ? 127.0f / largest : 0.0f;
  int32_t low, high;
  M::quantize_32(x, inverse, reinterpret_cast<int8_t*>(out + r * kBlock), low, high);
  put_numbers(largest * (1.0f / 127.0f), low, high, r, rows, halves, out);
}

// Row r of kManyBlocks consecutive records: the same numbers, by instructions that work on all of them.
template <class M>
INGOT_INLINE void quantize_many(const float* x, const float* largest, int r, int rows, bool halves, size_t record,
                                uint8_t* out) {
  constexpr int kMany = M::kManyBlocks;
  float d[kMany], inverse[kMany];
  int32_t low[kMany], high[kMany];
  for (int i = 0; i < kMany; i += kLanes) {
    const Vec most = load(largest + i);
    store(d + i, most * broadcast(1.0f / 127.0f));
    store(inverse + i, M::select_negative(broadcast(kLeastLargest) - most, broadcast(127.0f) / most, Vec{}));
  }
  M::quantize_many(x, inverse, out + r * kBlock, record, low, high);
  for (int i = 0; i < kMany; ++i) put_numbers(d[i], low[i], high[i], r, rows, halves, out + i * record);
}

// Above this a block is an outlier's: kOutlier times the root mean square of the row, squared. Of kRows rows.
template <int kRows>
INGOT_INLINE void outlier_squares(const float* x, int64_t stride, int64_t cols, float* out) {
  Vec sums[kRows];
  INGOT_UNROLL for (int r = 0; r < kRows; ++r) sums[r] = Vec{};
  for (int64_t k = 0; k < cols; k += kLanes)
    INGOT_UNROLL for (int r = 0; r < kRows; ++r) sums[r] =
        fma(load(x + r * stride + k), load(x + r * stride + k), sums[r]);
  INGOT_UNROLL for (int r = 0; r < kRows; ++r) {
    float lanes[kLanes];
    store(lanes, sums[r]);
    float total = 0.0f;
    for (int i = 0; i < kLanes; ++i) total += lanes[i];
    out[r] = total / static_cast<float>(cols) * (kOutlier * kOutlier);
  }
}

template <class M>
void quantize_rows(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last, bool halves,
                   uint8_t* act) {
  constexpr int kMany = M::kManyBlocks;
  const size_t record = static_cast<size_t>(rows) * (halves ? 60 : 44);
  const size_t fine = static_cast<size_t>(cols / kBlock) * record;
  uint32_t* outlier_rows = reinterpret_cast<uint32_t*>(act + 2 * fine);
  float limit[kMaxTileRows];
  int done = 0;
  for (; done + 4 <= rows; done += 4) outlier_squares<4>(in + done * in_stride, in_stride, cols, limit + done);
  for (; done < rows; ++done) outlier_squares<1>(in + done * in_stride, in_stride, cols, limit + done);
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
          M::largest_of_many(x, largest);
          quantize_many<M>(x, largest, r, rows, halves, record, out);
          done_blocks = count;
        }
      }
      for (int i = done_blocks; i < count; ++i) {
        largest[i] = M::largest_of_32(x + i * kBlock);
        quantize_record<M>(x + i * kBlock, largest[i], r, rows, halves, out + i * record);
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
        quantize_record<M>(rest, M::largest_of_32(rest), r, rows, halves, out + i * record + fine);
      }
    }
    for (int i = 0; i < count; ++i) outlier_rows[block + i] = outliers[i];
    block += count;
  }
}

// ---- the table ------------------------------------------------------------------------------------------------------

template <class M, DType kType, int kRows>
constexpr void add_tiles(KernelTable& table) {
  if constexpr (is_float_format(kType)) {
    table.tile[static_cast<int>(kType)][kRows - 1] = FloatTile<M, kType, kRows>::run;
  } else {
    table.tile[static_cast<int>(kType)][kRows - 1] = run_blocks<M, kType, kRows>;
  }
  if constexpr (kRows + 1 >= M::kMaxTile && M::unpacks(panel_format(kType))) {
    table.unpack[static_cast<int>(kType)] = unpack_panel<M, kType>;
    table.unpacked_tile[static_cast<int>(kType)][kRows - 1] = run_blocks<M, kType, kRows, true>;
  }
  if constexpr (kRows > 1) add_tiles<M, kType, kRows - 1>(table);
}

template <class M, int kType>
constexpr void add_types(KernelTable& table) {
  add_tiles<M, static_cast<DType>(kType), M::kMaxTile>(table);
  if constexpr (kType + 1 < kNumDTypes) add_types<M, kType + 1>(table);
}

template <class M>
constexpr KernelTable make_table() {
  KernelTable table = {};
  table.max_tile = M::kMaxTile;
  table.quantize = quantize_rows<M>;
  add_types<M, 0>(table);
  table.store[static_cast<int>(StoreKind::set)] = store_tile<M, StoreKind::set>;
  table.store[static_cast<int>(StoreKind::add)] = store_tile<M, StoreKind::add>;
  table.store[static_cast<int>(StoreKind::silu)] = store_tile<M, StoreKind::silu>;
  table.store[static_cast<int>(StoreKind::gelu_tanh)] = store_tile<M, StoreKind::gelu_tanh>;
  table.store[static_cast<int>(StoreKind::gelu)] = store_tile<M, StoreKind::gelu>;
  return table;
}

constinit const KernelTable kTable = make_table<Machine>();
