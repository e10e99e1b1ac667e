#include "backend/metal/linear/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "formats/block_codes.h"

namespace ingot::metal {
namespace {

static_assert(packed_format(DType::f32) == packed_f32 && packed_format(DType::f16) == packed_f16 &&
              packed_format(DType::bf16) == packed_bf16 &&
              static_cast<int>(packed_super16_min) == static_cast<int>(Scales::super16_min));

constexpr int64_t kUnit = 32;          // columns of a unit of the block formats; those of 8 bits count two of their own
constexpr int64_t kBlockColumns = 32;  // of a block of f16 and bf16

// Scales of `cols` columns: what a block has beside its codes.
int64_t meta_bytes(DType type, int64_t cols) {
  const DTypeInfo& info = dtype_info(type);
  if (info.layout.scales == Scales::none) return 0;
  const int code_bytes = info.block_size * (info.layout.low_bits + info.layout.high_bits) / 8;
  return cols / info.block_size * (info.block_bytes - code_bytes);
}

// Bits `shift` to `shift + bits` of 32 codes, in pairs 16 bits apart; words of 4 bits turned, see linear_formats.h.
template <int kBits>
void put_codes(const uint8_t* codes, int shift, uint8_t* out) {
  constexpr int kColumns = 32 / kBits;  // of a word
  for (int word = 0; word < kBits; ++word) {
    uint32_t value = 0;
    for (int c = 0; c < kColumns; ++c) {
      const uint32_t code = static_cast<uint32_t>(codes[word * kColumns + c]) >> shift & ((1u << kBits) - 1);
      value |= code << (c / 2 * kBits + c % 2 * 16);
    }
    if (kBits == 4) value = std::rotl(value, 2);
    std::memcpy(out + word * 4, &value, 4);
  }
}

// Eight pairs of 6-bit numbers in 12 bytes.
void put_pairs(const uint8_t (&a)[8], const uint8_t (&b)[8], uint8_t* out) {
  for (int i = 0; i < 8; ++i) out[i] = static_cast<uint8_t>((a[i] & 15) | (b[i] & 15) << 4);
  for (int i = 0; i < 4; ++i) {
    const int even = a[2 * i] >> 4 | (b[2 * i] >> 4) << 2, odd = a[2 * i + 1] >> 4 | (b[2 * i + 1] >> 4) << 2;
    out[8 + i] = static_cast<uint8_t>(even | odd << 4);
  }
}

// The scales of the block of 32, or of 256, that starts at `block` in the file.
template <DType kType>
void put_meta(const uint8_t* block, uint8_t* out) {
  constexpr BlockLayout kLayout = dtype_info(kType).layout;
  const uint8_t *d = block + kLayout.d_at, *sub = block + kLayout.sub_at;
  if constexpr (kLayout.scales == Scales::super16) {
    std::memcpy(out, sub, 16);
    std::memcpy(out + 16, d, 2);
    return;
  }
  constexpr int kHalves = has_min(kLayout.scales) ? 4 : 2;  // bytes
  std::memcpy(out, d, kHalves);
  if constexpr (kLayout.scales == Scales::super16_six) {
    uint8_t a[8], b[8];
    for (int i = 0; i < 8; ++i) {
      a[i] = static_cast<uint8_t>(block_sub_scale<kType>(block, 2 * i).scale + 32);
      b[i] = static_cast<uint8_t>(block_sub_scale<kType>(block, 2 * i + 1).scale + 32);
    }
    put_pairs(a, b, out + kHalves);
  }
  if constexpr (kLayout.scales == Scales::super32_min) std::memcpy(out + kHalves, sub, 12);
  if constexpr (kLayout.scales == Scales::super16_min) std::memcpy(out + kHalves, sub, 16);
}

// One row of a panel: `codes`, `high` and `meta` are where it begins in each plane.
template <DType kType>
void pack_row(const uint8_t* source, int64_t cols, const PackedPlanes& planes, uint8_t* codes, uint8_t* high,
              uint8_t* meta) {
  if constexpr (kType == DType::f32) {
    std::memcpy(codes, source, static_cast<size_t>(cols) * 4);
  } else if constexpr (kType == DType::f16 || kType == DType::bf16) {
    for (int64_t col = 0; col < cols; col += kBlockColumns)
      std::memcpy(codes + col / kBlockColumns * planes.code_block, source + col * 2,
                  static_cast<size_t>(std::min(kBlockColumns, cols - col)) * 2);
  } else {
    constexpr BlockLayout kLayout = dtype_info(kType).layout;
    const int64_t block_units = 4 * packed_unit_columns(kType) / kUnit;  // units of 32 columns of a block
    for (int64_t unit = 0; unit < cols / kUnit; ++unit) {
      uint32_t words[8];
      block_codes<kType>(source, unit, words);
      uint8_t values[kUnit];
      std::memcpy(values, words, sizeof(values));  // a word is four columns, one a byte
      const int64_t block = unit / block_units, place = unit % block_units;
      put_codes<kLayout.low_bits>(values, 0, codes + block * planes.code_block + place * kLayout.low_bits * 4);
      if constexpr (kLayout.high_bits > 0)
        put_codes<kLayout.high_bits>(values, kLayout.low_bits,
                                     high + block * planes.high_block + place * kLayout.high_bits * 4);
    }
    const DTypeInfo& info = dtype_info(kType);
    const int64_t each = meta_bytes(kType, info.block_size), in_block = kSuperColumns / info.block_size;
    for (int64_t block = 0; block < cols / info.block_size; ++block)
      put_meta<kType>(source + block * info.block_bytes,
                      meta + block / in_block * planes.meta_block + block % in_block * each);
  }
}

}  // namespace

PackedPlanes packed_planes(DType type, int64_t cols) {
  PackedPlanes planes{};
  const auto bytes = [](int64_t n) { return static_cast<uint32_t>(n); };
  if (type == DType::f32) {
    planes.code_stride = bytes((cols + 7) / 8 * 8 * 4);
    planes.code_block = bytes(4 * 8 * 4);
    planes.high_offset = planes.meta_offset = planes.panel_bytes = planes.code_stride * kPanelRows;
    return planes;
  }
  const bool plain = !is_block_quantized(type);
  const int64_t low_bits = plain ? 16 : dtype_info(type).layout.low_bits, high_bits = dtype_info(type).layout.high_bits;
  const int64_t block = 4 * packed_unit_columns(type);
  if (plain) cols = (cols + block - 1) / block * block;
  // Of one row.
  const int64_t code_bytes = cols * low_bits / 8, high_bytes = cols * high_bits / 8;
  const bool blocks = cols % block == 0, meta_blocks = cols % kSuperColumns == 0;
  const int64_t code_block = block * low_bits / 8, high_block = block * high_bits / 8;
  const int64_t meta_block = meta_bytes(type, kSuperColumns);
  planes.code_stride = bytes(blocks ? code_block : code_bytes);
  planes.high_stride = bytes(blocks ? high_block : high_bytes);
  planes.meta_stride = bytes(meta_blocks ? meta_block : meta_bytes(type, cols));
  planes.code_block = bytes(blocks ? code_block * kPanelRows : code_block);
  planes.high_block = bytes(blocks ? high_block * kPanelRows : high_block);
  planes.meta_block = bytes(meta_blocks ? meta_block * kPanelRows : meta_block);
  planes.high_offset = bytes(code_bytes * kPanelRows);
  planes.meta_offset = planes.high_offset + bytes(high_bytes * kPanelRows);
  planes.panel_bytes = planes.meta_offset + bytes(meta_bytes(type, cols) * kPanelRows);
  std::memcpy(planes.numbers, dtype_info(type).layout.numbers.data(), sizeof(planes.numbers));
  return planes;
}

std::vector<Segment> packed_segments(const MatrixSpec& spec) {
  check_matrix(spec);
  std::vector<Segment> segments;
  int64_t row = 0;
  for (const MatrixPart& part : spec.parts) {
    const TensorView& tensor = *part.tensor;
    if (segments.empty() || segments.back().type != tensor.dtype) segments.push_back({tensor.dtype, row, 0, 0});
    segments.back().rows += tensor.shape[0];
    row += tensor.shape[0];
  }
  size_t offset = 0;
  for (Segment& segment : segments) {
    segment.offset = offset;
    offset += segment.bytes(spec.cols);
  }
  return segments;
}

Packer::Packer(const MatrixSpec& spec, DropPages drop, ThreadPool* pool)
    : cols_(spec.cols), source_(spec, std::move(drop)), pool_(pool), segments_(packed_segments(spec)) {
  bytes_ = segments_.back().offset + segments_.back().bytes(cols_);
}

void Packer::pack_panel(const Segment& segment, int64_t panel, std::byte* out) const {
  const PackedPlanes planes = packed_planes(segment.type, cols_);
  std::memset(out, 0, planes.panel_bytes);
  auto* to = reinterpret_cast<uint8_t*>(out);
  const int64_t rows = std::min(kPanelRows, segment.rows - panel * kPanelRows);
  with_dtype(segment.type, [&]<DType kType>() {
    for (int64_t r = 0; r < rows; ++r)
      pack_row<kType>(source_.row(segment.first_row + panel * kPanelRows + r), cols_, planes,
                      to + r * planes.code_stride, to + planes.high_offset + r * planes.high_stride,
                      to + planes.meta_offset + r * planes.meta_stride);
  });
}

void Packer::fill(size_t offset, std::span<std::byte> out) {
  int64_t done = 0;  // rows of the matrix that are complete
  for (const Segment& segment : segments_) {
    const size_t end = std::min(offset + out.size(), segment.offset + segment.bytes(cols_));
    const size_t begin = std::max(offset, segment.offset);
    if (begin >= end) continue;
    const size_t panel_bytes = packed_planes(segment.type, cols_).panel_bytes;
    const auto first_panel = static_cast<int64_t>((begin - segment.offset) / panel_bytes);
    const auto panels = static_cast<int64_t>((end - segment.offset + panel_bytes - 1) / panel_bytes) - first_panel;
    const auto place = [&](int64_t panel) { return segment.offset + static_cast<size_t>(panel) * panel_bytes; };
    const auto whole = [&](int64_t panel) { return begin <= place(panel) && place(panel) + panel_bytes <= end; };
    const auto put = [&](int64_t i) {
      if (whole(first_panel + i)) pack_panel(segment, first_panel + i, out.data() + (place(first_panel + i) - offset));
    };
    if (pool_ != nullptr)
      pool_->run([&](Worker& worker) { worker.share(panels, put); });
    else
      for (int64_t i = 0; i < panels; ++i) put(i);
    for (const int64_t panel : {first_panel, first_panel + panels - 1}) {  // those that the range cuts
      const size_t first = place(panel), last = first + panel_bytes;
      if (!whole(panel)) {
        straddling_.resize(panel_bytes);
        pack_panel(segment, panel, straddling_.data());
        const size_t from = std::max(begin, first), to = std::min(end, last);
        std::memcpy(out.data() + (from - offset), straddling_.data() + (from - first), to - from);
      }
      if (last <= end) done = segment.first_row + std::min(segment.rows, (panel + 1) * kPanelRows);
    }
  }
  source_.drop_before(done);
}

}  // namespace ingot::metal
