#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/panel_codes.h"

// The kernels in plain C++: what every other ISA is tested against, and what runs on processors that have none of them.
namespace ingot::cpu {
namespace {

constexpr int kMaxTile = 4;

// Row r of one record; `rest` becomes what the codes miss. Returns the largest magnitude.
float quantize_record(const float* x, int r, int rows, bool halves, uint8_t* out, float* rest) {
  auto* fields = reinterpret_cast<uint32_t*>(out + rows * kBlock);  // [3 or 7][rows]
  auto* codes = reinterpret_cast<int8_t*>(out + r * kBlock);
  float largest = 0.0f;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(x[i]));
  const float d = largest * (1.0f / 127.0f);
  const float inverse = largest > 1e-30f ? 127.0f / largest : 0.0f;
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < kBlock; ++i) {
    const int32_t code = static_cast<int32_t>(std::lrintf(x[i] * inverse));
    codes[i] = static_cast<int8_t>(code);
    sums[i / 16] += code;
    rest[i] = x[i] - d * static_cast<float>(code);
  }
  const int32_t sum = sums[0] + sums[1];
  fields[r] = std::bit_cast<uint32_t>(d);
  fields[rows + r] = static_cast<uint32_t>(-sum);
  fields[2 * rows + r] = std::bit_cast<uint32_t>(d * static_cast<float>(sum));
  if (halves) {
    fields[3 * rows + r] = static_cast<uint32_t>(-sums[0]);
    fields[4 * rows + r] = static_cast<uint32_t>(-sums[1]);
    fields[5 * rows + r] = std::bit_cast<uint32_t>(d * static_cast<float>(sums[0]));
    fields[6 * rows + r] = std::bit_cast<uint32_t>(d * static_cast<float>(sums[1]));
  }
  return largest;
}

void quantize(const float* in, int64_t in_stride, int rows, int64_t cols, int64_t first, int64_t last, bool halves,
              uint8_t* act) {
  const size_t record = activation_record_bytes(rows, halves);
  const size_t fine = static_cast<size_t>(cols / kBlock) * record;
  auto* outliers = reinterpret_cast<uint32_t*>(act + 2 * fine);
  float limit[kMaxTile];  // squares above this are outliers
  for (int r = 0; r < rows; ++r) {
    const float* x = in + r * in_stride;
    float total = 0.0f;
    for (int64_t k = 0; k < cols; ++k) total += x[k] * x[k];
    limit[r] = total / static_cast<float>(cols) * (kOutlier * kOutlier);
  }
  for (int64_t block = first; block < last; ++block) {
    uint8_t* out = act + static_cast<size_t>(block) * record;
    outliers[block] = 0;
    for (int r = 0; r < rows; ++r) {
      float rest[kBlock], ignored[kBlock];
      const float largest = quantize_record(in + r * in_stride + block * kBlock, r, rows, halves, out, rest);
      if (largest * largest <= limit[r]) continue;
      outliers[block] |= 1u << r;
      quantize_record(rest, r, rows, halves, out + fine, ignored);
    }
  }
}

void dot_codes(const int16_t (*w)[kPanelRows], const int8_t* x, int columns, int32_t (&dot)[kPanelRows]) {
  for (int column = 0; column < columns; ++column)
    for (int i = 0; i < kPanelRows; ++i) dot[i] += static_cast<int16_t>(w[column][i] * x[column]);
}

// add_slice() of tiles.h.
template <int kRows>
void add_slice(int slice, float (&acc)[kRows][kPanelRows], float (&waiting)[2][kRows][kPanelRows]) {
  for (int level = 0; level < 2; ++level) {
    if ((slice >> level & 1) == 0) {
      std::memcpy(waiting[level], acc, sizeof acc);
      return;
    }
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kPanelRows; ++i) acc[r][i] = waiting[level][r][i] + acc[r][i];
  }
}

// One slice: `panel` and `act` go on to the next.
template <DType kType, int kRows>
void block_slice(int64_t blocks, bool halves, const uint8_t*& panel, const uint8_t*& act,
                 float (&acc)[kRows][kPanelRows]) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr bool kMins = has_min(kFormat.scales);
  const size_t record = activation_record_bytes(kRows, halves);
  const size_t fine = static_cast<size_t>(blocks) * record;
  const uint8_t* header = nullptr;
  for (int64_t block = 0; block < blocks; ++block) {
    int16_t w[kBlock][kPanelRows];  // codes
    float scale[2][kPanelRows], min[2][kPanelRows];
    if (block % kFormat.group() == 0) {
      header = panel;
      panel += kFormat.header_bytes;
    }
    for (int column = 0; column < kBlock; ++column)
      for (int r = 0; r < kPanelRows; ++r) w[column][r] = static_cast<int16_t>(panel_code<kType>(panel, column, r));
    for (int half = 0; half < 2; ++half)
      for (int r = 0; r < kPanelRows; ++r) panel_scale<kType>(header, panel, half, r, scale[half][r], min[half][r]);
    panel += kFormat.record_bytes;
    const uint32_t outliers = reinterpret_cast<const uint32_t*>(act + 2 * fine)[block];
    for (int i = 0; i < 2 * kRows; ++i) {
      const int r = i % kRows;
      if (i >= kRows && (outliers >> r & 1) == 0) continue;
      const uint8_t* own = act + static_cast<size_t>(block) * record + (i >= kRows ? fine : 0);
      const auto* fields = reinterpret_cast<const uint32_t*>(own + kRows * kBlock);
      const auto* x = reinterpret_cast<const int8_t*>(own + r * kBlock);
      const float d = std::bit_cast<float>(fields[r]);
      if constexpr (needs_halves(kType)) {
        for (int half = 0; half < 2; ++half) {
          int32_t dot[kPanelRows];
          const int32_t start = static_cast<int32_t>(fields[(3 + half) * kRows + r]) * kFormat.zero_point;
          std::fill(dot, dot + kPanelRows, start);
          dot_codes(w + half * 16, x + half * 16, 16, dot);
          const float dsum = std::bit_cast<float>(fields[(5 + half) * kRows + r]);
          for (int i = 0; i < kPanelRows; ++i) {
            acc[r][i] += static_cast<float>(dot[i]) * (scale[half][i] * d);
            if constexpr (kMins) acc[r][i] += min[half][i] * dsum;
          }
        }
      } else {
        int32_t dot[kPanelRows];
        const int32_t start = static_cast<int32_t>(fields[kRows + r]) * kFormat.zero_point;
        std::fill(dot, dot + kPanelRows, start);
        dot_codes(w, x, kBlock, dot);
        const float dsum = std::bit_cast<float>(fields[2 * kRows + r]);
        for (int i = 0; i < kPanelRows; ++i) {
          acc[r][i] += static_cast<float>(dot[i]) * (scale[0][i] * d);
          if constexpr (kMins) acc[r][i] += min[0][i] * dsum;
        }
      }
    }
  }
  act += activation_bytes(kRows, blocks, halves);
}

// Columns [k, end).
template <DType kType, int kRows>
void float_slice(const TileArgs& args, int64_t k, int64_t end, const uint8_t* panel, float (&acc)[kRows][kPanelRows]) {
  for (; k < end; ++k) {
    float w[kPanelRows];
    for (int i = 0; i < kPanelRows; ++i) {
      if constexpr (kType == DType::f32) std::memcpy(&w[i], panel + (k * 16 + i) * 4, 4);
      if constexpr (kType == DType::f16) w[i] = load_half(panel + (k * 16 + i) * 2);
      if constexpr (kType == DType::bf16) w[i] = bf16_to_f32(load_u16(panel + (k / 2 * 32 + i * 2 + k % 2) * 2));
    }
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kPanelRows; ++i) acc[r][i] += w[i] * args.in[r * args.in_stride + k];
  }
}

template <DType kType, int kRows>
void tile(const TileArgs& args) {
  for (int i = 0; i < args.panels; ++i) {
    const uint8_t* panel = args.panel + static_cast<size_t>(i) * args.panel_bytes;
    const uint8_t* act = args.act;
    float acc[kRows][kPanelRows], waiting[2][kRows][kPanelRows];
    int64_t column = 0;
    for (int slice = 0; slice < args.slices; ++slice) {
      const int64_t end = args.slice_ends[slice];
      std::memset(acc, 0, sizeof acc);
      if constexpr (is_float_format(kType)) {
        float_slice<kType, kRows>(args, column, end, panel, acc);
      } else {
        block_slice<kType, kRows>((end - column) / kBlock, args.halves, panel, act, acc);
      }
      add_slice<kRows>(slice, acc, waiting);
      column = end;
    }
    std::memcpy(args.out + i * kRows * kPanelRows, acc, sizeof acc);
  }
}

float activate(StoreKind kind, float x) {
  switch (kind) {
    case StoreKind::silu: return x / (1.0f + std::exp(-x));
    case StoreKind::gelu_tanh: return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    case StoreKind::gelu: return 0.5f * x * (1.0f + std::erf(x * 0.70710678119f));
    default: return x;
  }
}

template <StoreKind kKind>
void store(const StoreArgs& args) {
  for (int r = 0; r < args.rows; ++r) {
    float* out = args.out + r * args.out_stride;
    for (int i = 0; i < args.cols; ++i) {
      const int at = (i / kPanelRows * args.rows + r) * kPanelRows + i % kPanelRows;
      float value = args.tile[at] + (args.bias ? args.bias[i] : 0.0f);
      if constexpr (kKind == StoreKind::add) {
        value = out[i] + value;
      } else if constexpr (kKind != StoreKind::set) {
        if (args.gate_tile == nullptr) {
          value = activate(kKind, value);
        } else {
          value = activate(kKind, args.gate_tile[at] + (args.gate_bias ? args.gate_bias[i] : 0.0f)) * value;
        }
      }
      out[i] = value;
    }
  }
}

template <DType kType, int kRows>
void add_tiles(KernelTable& table) {
  table.tile[static_cast<int>(kType)][kRows - 1] = tile<kType, kRows>;
  if constexpr (kRows > 1) add_tiles<kType, kRows - 1>(table);
}

template <int kType = 0>
void add_types(KernelTable& table) {
  add_tiles<static_cast<DType>(kType), kMaxTile>(table);
  if constexpr (kType + 1 < kNumDTypes) add_types<kType + 1>(table);
}

KernelTable make_table() {
  KernelTable table = {};
  table.max_tile = kMaxTile;
  table.quantize = quantize;
  add_types(table);
  table.store[static_cast<int>(StoreKind::set)] = store<StoreKind::set>;
  table.store[static_cast<int>(StoreKind::add)] = store<StoreKind::add>;
  table.store[static_cast<int>(StoreKind::silu)] = store<StoreKind::silu>;
  table.store[static_cast<int>(StoreKind::gelu_tanh)] = store<StoreKind::gelu_tanh>;
  table.store[static_cast<int>(StoreKind::gelu)] = store<StoreKind::gelu>;
  return table;
}

}  // namespace

const KernelTable* portable_kernels() {
  static const KernelTable table = make_table();
  return &table;
}

}  // namespace ingot::cpu
