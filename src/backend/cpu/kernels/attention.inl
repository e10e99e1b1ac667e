// Softmax attention of a few query rows over one split of a paged cache.
//
// Both products are small matrix products with the same inner block: some rows by some vectors of accumulators,
// one multiply-add an element in the order of the inner index. Scores have keys in the lanes and run over head dims;
// outputs have head dims in the lanes and run over keys. A lane's arithmetic is the same whatever rows share its block,
// so decode (few rows, straight from the cache) and prefill (many rows, from tiles converted once) give the same bits.

// The elements of the cache as floats, eight or a vector at a time.
struct F32Element {
  using Type = float;
  static constexpr bool kScaled = false;
  static inline Vec vec(const float* p) { return load(p); }
  static inline void eight(const float* p, float* out) { __builtin_memcpy(out, p, 8 * sizeof(float)); }
};
struct F16Element {
  using Type = uint16_t;
  static constexpr bool kScaled = false;
  static inline Vec vec(const uint16_t* p) { return load_f16(p); }
  static inline void eight(const uint16_t* p, float* out) { widen8_f16(p, out); }
};
struct Int8Element {
  using Type = int8_t;
  static constexpr bool kScaled = true;
  static inline Vec vec(const int8_t* p) { return load_i8(p); }
  static inline void eight(const int8_t* p, float* out) { widen8_i8(p, out); }
};
struct Bf16Element {
  using Type = uint16_t;
  static constexpr bool kScaled = false;
  static inline Vec vec(const uint16_t* p) { return load_bf16(p); }
  static inline void eight(const uint16_t* p, float* out) {
    for (int i = 0; i < 8; ++i) out[i] = __builtin_bit_cast(float, static_cast<uint32_t>(p[i]) << 16);
  }
};

inline uint16_t narrow_bf16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

inline void narrow(const float* in, int64_t n, KvType type, uint16_t* out) {
  if (type == KvType::bf16) {
    for (int64_t i = 0; i < n; ++i) out[i] = narrow_bf16(in[i]);
    return;
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_f16(out + i, load(in + i));
  for (; i < n; ++i) {
    uint16_t copies[kLanes];
    store_f16(copies, broadcast(in[i]));
    out[i] = copies[0];
  }
}

// One row as integers and the scale that multiplies them; both depend on this row alone. A row with an infinity or a
// NaN gets a scale that keeps it visible; one too small for its scale to have an inverse becomes zero.
inline void quantize_row(const float* in, int64_t n, int8_t* out, float* scale) {
  uint32_t bits = 0;  // of the largest magnitude; those of a NaN are above all others
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = __builtin_bit_cast(uint32_t, in[i]) & 0x7fffffff;
    bits = magnitude > bits ? magnitude : bits;
  }
  const float largest = __builtin_bit_cast(float, bits);
  const bool finite = bits < 0x7f800000, tiny = finite && largest < 1e-30f;
  *scale = tiny ? 0.0f : finite ? largest / 127.0f : __builtin_nanf("");
  if (tiny || !finite) {
    __builtin_memset(out, 0, static_cast<size_t>(n));
    return;
  }
  const Vec inverse = broadcast(127.0f / largest);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_i8(out + i, load(in + i) * inverse);
  for (; i < n; ++i) {
    int8_t copies[kLanes];
    store_i8(copies, broadcast(in[i]) * inverse);
    out[i] = copies[0];
  }
}

void store_kv(const float* key, const float* value, void* key_block, void* value_block, int64_t head_size,
              int64_t block_size, int64_t offset, KvType type) {
  if (type == KvType::f32) {
    float* keys = static_cast<float*>(key_block) + offset;
    for (int64_t d = 0; d < head_size; ++d) keys[d * block_size] = key[d];
    __builtin_memcpy(static_cast<float*>(value_block) + offset * head_size, value,
                     static_cast<size_t>(head_size) * sizeof(float));
    return;
  }
  if (type == KvType::int8) {
    int8_t rounded[512];
    int8_t* keys = static_cast<int8_t*>(key_block);
    int8_t* values = static_cast<int8_t*>(value_block);
    const int64_t numbers = block_size * head_size;  // the scales are behind them
    quantize_row(key, head_size, rounded, reinterpret_cast<float*>(keys + numbers) + offset);
    for (int64_t d = 0; d < head_size; ++d) keys[d * block_size + offset] = rounded[d];
    quantize_row(value, head_size, values + offset * head_size, reinterpret_cast<float*>(values + numbers) + offset);
    return;
  }
  uint16_t rounded[512];
  narrow(key, head_size, type, rounded);
  uint16_t* keys = static_cast<uint16_t*>(key_block) + offset;
  for (int64_t d = 0; d < head_size; ++d) keys[d * block_size] = rounded[d];
  narrow(value, head_size, type, static_cast<uint16_t*>(value_block) + offset * head_size);
}

// Where the keys (or values) of a tile come from: [index][position in the row].
struct TileSource {
  const float* data;
  int64_t stride;
  inline Vec vec(int64_t row, int64_t col) const { return load(data + row * stride + col); }
};
template <typename E>
struct CacheKeys {
  const typename E::Type* const* groups;
  int64_t stride;
  inline Vec vec(int64_t d, int64_t key) const { return E::vec(groups[key / 8] + d * stride + key % 8); }
};
template <typename E>
struct CacheValues {
  const typename E::Type* const* groups;
  int64_t stride;
  inline Vec vec(int64_t key, int64_t dim) const { return E::vec(groups[key / 8] + (key % 8) * stride + dim); }
};

constexpr int kBlockRows = kRegisters >= 16 ? 6 : 4;  // most rows of a block of accumulators

// out[m, col ...] = rescale[m] * out[m, col ...] + sum over i in [begin, end) of a[m, i] * b[i, col ...], for M rows by
// V vectors. Without `rescale` the old contents do not count.
template <int M, int V, typename B, typename A>
inline void multiply_block(const float* a, int64_t a_stride, const B& b, int64_t begin, int64_t end, int64_t col,
                           const float* rescale, A& ahead, float* out, int64_t out_stride) {
  const bool asks = col == 0 && ahead.any();
  Vec acc[M][V];
  if (rescale == nullptr) {
    INGOT_UNROLL for (int m = 0; m < M; ++m) INGOT_UNROLL for (int v = 0; v < V; ++v) acc[m][v] = Vec{};
  } else {
    INGOT_UNROLL for (int m = 0; m < M; ++m) INGOT_UNROLL for (int v = 0; v < V; ++v) acc[m][v] =
        load(out + m * out_stride + col + v * kLanes) * broadcast(rescale[m]);
  }
  for (int64_t i = begin; i < end; ++i) {
    if (asks) ahead.step();
    Vec row[V];
    INGOT_UNROLL for (int v = 0; v < V; ++v) row[v] = b.vec(i, col + v * kLanes);
    INGOT_UNROLL for (int m = 0; m < M; ++m) {
      const Vec x = broadcast(a[m * a_stride + i]);
      INGOT_UNROLL for (int v = 0; v < V; ++v) acc[m][v] = fma(x, row[v], acc[m][v]);
    }
  }
  INGOT_UNROLL for (int m = 0; m < M; ++m) INGOT_UNROLL for (int v = 0; v < V; ++v)
      store(out + m * out_stride + col + v * kLanes, acc[m][v]);
}

// How many vectors across for some rows: what leaves room for a row of the other matrix and one broadcast.
constexpr int block_cols(int rows) {
  int cols = 8;
  while (cols > 1 && rows * cols + (cols < 4 ? cols : 4) + 1 > kRegisters) cols = cols > 4 ? 4 : cols - 1;
  return cols;
}

// Columns from `col` on, of M rows, V vectors at a time, then fewer; their number is a multiple of the lanes.
template <int M, int V, typename B, typename A>
inline void multiply_cols(const float* a, int64_t a_stride, const B& b, int64_t begin, int64_t end, int64_t col,
                          int64_t cols, const float* rescale, A& ahead, float* out, int64_t out_stride) {
  for (; col + V * kLanes <= cols; col += V * kLanes)
    multiply_block<M, V>(a, a_stride, b, begin, end, col, rescale, ahead, out, out_stride);
  if constexpr (V > 1)
    multiply_cols<M, (V > 4 ? 4 : V - 1)>(a, a_stride, b, begin, end, col, cols, rescale, ahead, out, out_stride);
}

template <int M, typename B, typename A>
inline void multiply_rows(const float* a, int64_t a_stride, const B& b, int64_t begin, int64_t end, int64_t cols,
                          const float* rescale, A& ahead, float* out, int64_t out_stride) {
  multiply_cols<M, block_cols(M)>(a, a_stride, b, begin, end, 0, cols, rescale, ahead, out, out_stride);
}

template <typename B, typename A>
inline void multiply(int rows, const float* a, int64_t a_stride, const B& b, int64_t begin, int64_t end, int64_t cols,
                     const float* rescale, A& ahead, float* out, int64_t out_stride) {
  switch (rows) {
    case 1: return multiply_rows<1>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
    case 2: return multiply_rows<2>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
    case 3: return multiply_rows<3>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
    case 4: return multiply_rows<4>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
    default: break;
  }
  if constexpr (kBlockRows >= 6) {
    if (rows == 5) return multiply_rows<5>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
    if (rows == 6) return multiply_rows<6>(a, a_stride, b, begin, end, cols, rescale, ahead, out, out_stride);
  }
}

// The keys of a tile that a row sees: [begin, end), relative to the tile.
struct Range {
  int begin, end;
};
inline Range visible(const AttentionArgs& args, int row, int64_t tile_start) {
  int64_t begin = args.first[row] - tile_start, end = args.last[row] + 1 - tile_start;
  begin = begin < 0 ? 0 : begin;
  end = end > kTileKeys ? kTileKeys : end;
  if (begin >= end) return {0, 0};
  return {static_cast<int>(begin), static_cast<int>(end)};
}

// Scales of the rows of a tile, where the cache has them: factors of the scores (K) and of the weights (V).
struct TileScales {
  float keys[kTileKeys], values[kTileKeys];
};

// Scores of one row over a tile become weights 2^(score - largest), 0 for keys it does not see; the state's largest
// score and sum move on. Returns what the older weighted sum must be multiplied by. `scales` may be null; the sum of
// the weights is without those of the values.
inline float softmax_tile(float* scores, const TileScales* scales, Range range, float* largest, float* sum) {
  const Vec lowest = broadcast(-__builtin_inff());
  constexpr int kVecs = kTileKeys / kLanes;
  Vec s[kVecs];
  Vec best = lowest;
  for (int v = 0; v < kVecs; ++v) s[v] = load(scores + v * kLanes);
  if (scales != nullptr)
    for (int v = 0; v < kVecs; ++v) s[v] *= load(scales->keys + v * kLanes);
  if (range.begin > 0 || range.end < kTileKeys) {
    const IVec lanes = lane_numbers();
    for (int v = 0; v < kVecs; ++v) {
      const IVec key = lanes + v * kLanes;
      s[v] = ((key >= range.begin) & (key < range.end)) ? s[v] : lowest;
    }
  }
  for (int v = 0; v < kVecs; ++v) best = max_lanes(s[v], best);
  const float tile_best = reduce_max(best);
  const float new_best = tile_best > *largest ? tile_best : *largest;
  // Every key seen may still score -infinity (or NaN): subtracting 0 then keeps the weights at 0 (or NaN).
  const Vec shift = broadcast(new_best == -__builtin_inff() ? 0.0f : new_best);
  Vec total{};
  for (int v = 0; v < kVecs; ++v) {
    const Vec w = exp2_lanes(s[v] - shift);
    store(scores + v * kLanes, scales == nullptr ? w : w * load(scales->values + v * kLanes));
    total += w;
  }
  const float rescale = *largest == new_best ? 1.0f : exp2_one(*largest - new_best);
  *largest = new_best;
  *sum = *sum * rescale + reduce_add(total);
  return rescale;
}

// states[r].values = states[r].values * rescale[r] + weights[r] . values, only over keys each row sees, so that nothing
// a row must not see can reach it, not even a NaN times zero. Keys are taken in ascending order for every row.
template <typename B, typename A>
inline void add_values(const AttentionArgs& args, const B& values, int row, int count, int64_t tile_start,
                       float* rescale, A& ahead, float* states) {
  const int64_t stride = softmax_stride(args.head_size);
  const int64_t cols = padded_head(args.head_size);
  Range shared = visible(args, row, tile_start);
  bool same = true;
  for (int m = 1; m < count; ++m) {
    const Range r = visible(args, row + m, tile_start);
    same = same && r.begin == shared.begin && r.end == shared.end;
    shared.begin = r.begin > shared.begin ? r.begin : shared.begin;
    shared.end = r.end < shared.end ? r.end : shared.end;
  }
  const float* weights = args.weights + static_cast<int64_t>(row) * kTileKeys;
  if (shared.end < shared.begin) shared.end = shared.begin;
  if (!same) {
    for (int m = 0; m < count; ++m) {
      const Range r = visible(args, row + m, tile_start);
      const int end = r.end < shared.begin ? r.end : shared.begin;
      if (r.begin >= end) continue;
      multiply(1, weights + m * kTileKeys, kTileKeys, values, r.begin, end, cols, rescale + m, ahead,
               states + (row + m) * stride, stride);
      rescale[m] = 1.0f;
    }
  }
  multiply(count, weights, kTileKeys, values, shared.begin, shared.end, cols, rescale, ahead, states + row * stride,
           stride);
  if (!same) {
    const float one = 1.0f;
    for (int m = 0; m < count; ++m) {
      const Range r = visible(args, row + m, tile_start);
      const int begin = r.begin > shared.end ? r.begin : shared.end;
      if (begin >= r.end) continue;
      multiply(1, weights + m * kTileKeys, kTileKeys, values, begin, r.end, cols, &one, ahead,
               states + (row + m) * stride, stride);
    }
  }
}

template <typename K, typename V, typename A>
inline void attend_tile(const AttentionArgs& args, const K& keys, const V& values, const TileScales* scales,
                        int64_t tile_start, const float* q, A& ahead, float* states) {
  const int64_t d = args.head_size;
  const int64_t stride = softmax_stride(d);
  for (int row = 0; row < args.rows; row += kBlockRows) {
    const int count = args.rows - row < kBlockRows ? args.rows - row : kBlockRows;
    float* weights = args.weights + static_cast<int64_t>(row) * kTileKeys;
    multiply(count, q + row * d, d, keys, 0, d, kTileKeys, nullptr, ahead, weights, kTileKeys);
    float rescale[kBlockRows];
    for (int m = 0; m < count; ++m) {
      const Range range = visible(args, row + m, tile_start);
      float* largest = states + (row + m) * stride + padded_head(d);
      rescale[m] =
          range.begin == range.end ? 1.0f : softmax_tile(weights + m * kTileKeys, scales, range, largest, largest + 1);
    }
    add_values(args, values, row, count, tile_start, rescale, ahead, states);
  }
}

// Fills the tiles from groups that are there; the rest keeps what it had, and nobody looks at it.
template <typename E>
inline void convert_tile(const AttentionArgs& args, const typename E::Type* const* keys,
                         const typename E::Type* const* values) {
  const int64_t d = args.head_size, padded = padded_head(d), block_size = args.block_size;
  for (int g = 0; g < kGroups; ++g) {
    if (keys[g] == nullptr) continue;
    float* out = args.key_tile + 8 * g;
    for (int64_t i = 0; i < d; ++i) E::eight(keys[g] + i * block_size, out + i * kTileKeys);
    for (int64_t k = 0; k < 8; ++k) {
      float* row = args.value_tile + (8 * g + k) * padded;
      for (int64_t i = 0; i < d; i += 8) E::eight(values[g] + k * d + i, row + i);
    }
  }
}

// A tile of one KV head, which begins `head` elements behind the first one.
template <typename E>
inline void attend_head(const AttentionArgs& args, int64_t start, int32_t first, int32_t last, int64_t head,
                        bool direct, const float* q, Ahead& ahead, float* states) {
  using T = typename E::Type;
  const int64_t d = args.head_size;
  const int64_t unit = args.block_size % 16 == 0 ? 16 : 8;  // aligned keys that are surely in one block
  const T* keys[kGroups];
  const T* values[kGroups];
  const T* some_block = nullptr;
  TileScales tile_scales{};
  const TileScales* scales = E::kScaled ? &tile_scales : nullptr;
  for (int g = 0; g < kGroups; ++g) {
    const int64_t position = start + 8 * g;
    const int64_t aligned = position - position % unit;
    keys[g] = values[g] = nullptr;
    if (aligned > last || aligned + unit <= first) continue;  // nobody sees it: it may have no block
    const int64_t block = args.blocks[position / args.block_size] * args.block_stride + head;
    const int64_t offset = position % args.block_size;
    some_block = static_cast<const T*>(args.keys) + block;
    keys[g] = some_block + offset;
    values[g] = static_cast<const T*>(args.values) + block + offset * d;
    if constexpr (E::kScaled) {
      const int64_t at = args.block_size * d + offset * static_cast<int64_t>(sizeof(float));
      __builtin_memcpy(tile_scales.keys + 8 * g, static_cast<const T*>(args.keys) + block + at, 8 * sizeof(float));
      __builtin_memcpy(tile_scales.values + 8 * g, static_cast<const T*>(args.values) + block + at, 8 * sizeof(float));
    }
  }
  if (direct) {
    // Keys without a block get scores from any readable memory; the scores are thrown away.
    for (int g = 0; g < kGroups; ++g) keys[g] = keys[g] == nullptr ? some_block : keys[g];
    const CacheKeys<E> cached_keys{keys, args.block_size};
    const CacheValues<E> cached_values{values, d};
    NothingAhead nothing;
    if (args.reads_to >= 0)
      attend_tile(args, cached_keys, cached_values, scales, start, q, ahead, states);
    else
      attend_tile(args, cached_keys, cached_values, scales, start, q, nothing, states);
  } else {
    NothingAhead nothing;
    convert_tile<E>(args, keys, values);
    attend_tile(args, TileSource{args.key_tile, kTileKeys}, TileSource{args.value_tile, padded_head(d)}, scales, start,
                q, nothing, states);
  }
}

template <typename E>
inline void attend_cache(const AttentionArgs& args, int64_t split, int32_t first, int32_t last, float* states) {
  using T = typename E::Type;
  const int64_t d = args.head_size;
  // Few rows read the cache directly; many are worth a tile of converted keys and values.
  const bool direct =
      kWidensFast && args.rows <= 2 * kBlockRows && args.block_size % kLanes == 0 && d % kLanes == 0;
  const bool in_tile = args.block_size <= kTileKeys && kTileKeys % args.block_size == 0;
  for (int64_t start = split * kSplitKeys; start < (split + 1) * kSplitKeys; start += kTileKeys) {
    if (start > last || start + kTileKeys <= first) continue;
    Ahead ahead;
    if (in_tile && args.reads_to >= 0) {
      const int64_t then = start + kTileKeys;
      const CacheRange rest{args.keys, args.values, args.blocks, then, args.reads_to};
      const int64_t seen = (last < then ? last + 1 : then) - (first > start ? first : start);  // keys
      ahead.follow<T>(args, then <= args.reads_to ? rest : args.next,
                      args.heads * args.head_stride * static_cast<int64_t>(sizeof(T)), args.heads * (d + seen));
    }
    for (int64_t h = 0; h < args.heads; ++h)
      attend_head<E>(args, start, first, last, h * args.head_stride, direct, args.q + h * args.rows * d, ahead,
                     states + h * args.rows * softmax_stride(d));
  }
}

void attend_split(const AttentionArgs& args, int64_t split, float* states) {
  const int64_t stride = softmax_stride(args.head_size);
  int32_t first = args.first[0], last = args.last[0];
  for (int row = 0; row < args.rows; ++row) {
    first = args.first[row] < first ? args.first[row] : first;
    last = args.last[row] > last ? args.last[row] : last;
  }
  for (int64_t row = 0; row < args.heads * args.rows; ++row) {
    float* state = states + row * stride;
    __builtin_memset(state, 0, static_cast<size_t>(stride) * sizeof(float));
    state[padded_head(args.head_size)] = -__builtin_inff();
  }
  switch (args.type) {
    case KvType::f32: return attend_cache<F32Element>(args, split, first, last, states);
    case KvType::f16: return attend_cache<F16Element>(args, split, first, last, states);
    case KvType::int8: return attend_cache<Int8Element>(args, split, first, last, states);
    case KvType::bf16: return attend_cache<Bf16Element>(args, split, first, last, states);
  }
}

void merge_states(float* total, const float* part, int64_t rows, int64_t head_size) {
  const int64_t padded = padded_head(head_size);
  const int64_t stride = softmax_stride(head_size);
  for (int64_t row = 0; row < rows; ++row, total += stride, part += stride) {
    const float a = total[padded], b = part[padded];
    if (part[padded + 1] == 0.0f) continue;  // the row saw nothing there
    const float best = a > b ? a : b;
    const float shift = best == -__builtin_inff() ? 0.0f : best;
    const float scale_a = exp2_one(a - shift), scale_b = exp2_one(b - shift);
    for (int64_t i = 0; i < padded; ++i) total[i] = total[i] * scale_a + part[i] * scale_b;
    total[padded] = best;
    total[padded + 1] = total[padded + 1] * scale_a + part[padded + 1] * scale_b;
  }
}

void finish_state(const float* state, int64_t head_size, float* out) {
  const float inverse = 1.0f / state[padded_head(head_size) + 1];
  for (int64_t i = 0; i < head_size; ++i) out[i] = state[i] * inverse;
}
