#include "backend/metal/linear/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"
#include "formats/block_codes.h"

namespace ingot::metal {
namespace {

constexpr int64_t kUnit = 32;          // columns of a unit of the block formats; q8_0 counts two of its own
constexpr int64_t kBlockColumns = 32;  // of a block of f16 and bf16

struct Codes {
  int low_bits, high_bits;
};
constexpr Codes codes_of(DType type) {
  switch (type) {
    case DType::q8_0: return {8, 0};
    case DType::q2_k: return {2, 0};
    case DType::q3_k: return {2, 1};
    case DType::q5_0:
    case DType::q5_1:
    case DType::q5_k: return {4, 1};
    case DType::q6_k: return {4, 2};
    default: return {4, 0};
  }
}

// Scales of `cols` columns.
int64_t meta_bytes(DType type, int64_t cols) {
  switch (type) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0: return cols / kUnit * 2;
    case DType::q4_1:
    case DType::q5_1: return cols / kUnit * 4;
    case DType::q2_k: return cols / kSuperColumns * 20;
    case DType::q3_k: return cols / kSuperColumns * 14;
    case DType::q4_k:
    case DType::q5_k: return cols / kSuperColumns * 16;
    case DType::q6_k: return cols / kSuperColumns * 18;
    default: return 0;
  }
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

// The scales of the block of 32, or of 256 for the K formats, that starts at `block` in the file.
template <DType kType>
void put_meta(const uint8_t* block, uint8_t* out) {
  uint8_t a[8], b[8];
  switch (kType) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0: std::memcpy(out, block, 2); return;
    case DType::q4_1:
    case DType::q5_1: std::memcpy(out, block, 4); return;
    case DType::q2_k:
      std::memcpy(out, block + 80, 4);
      std::memcpy(out + 4, block, 16);
      return;
    case DType::q3_k:
      std::memcpy(out, block + 108, 2);
      for (int i = 0; i < 8; ++i) {
        a[i] = static_cast<uint8_t>(block_scale_q3(block + 96, 2 * i) + 32);
        b[i] = static_cast<uint8_t>(block_scale_q3(block + 96, 2 * i + 1) + 32);
      }
      put_pairs(a, b, out + 2);
      return;
    case DType::q4_k:
    case DType::q5_k: std::memcpy(out, block, 16); return;
    case DType::q6_k:
      std::memcpy(out, block + 192, 16);
      std::memcpy(out + 16, block + 208, 2);
      return;
    default: return;
  }
}

// One row of a panel: `codes`, `high` and `meta` are where it begins in each plane.
template <DType kType>
void pack_row(const uint8_t* source, int64_t cols, const PackedPlanes& planes, uint8_t* codes, uint8_t* high,
              uint8_t* meta) {
  constexpr Codes kCodes = codes_of(kType);
  const int64_t block_units = 4 * packed_unit_columns(kType) / kUnit;  // units of 32 columns of a block
  for (int64_t unit = 0; unit < cols / kUnit; ++unit) {
    uint32_t words[8];
    block_codes<kType>(source, unit, words);
    uint8_t values[kUnit];
    std::memcpy(values, words, sizeof(values));  // a word is four columns, one a byte
    const int64_t block = unit / block_units, place = unit % block_units;
    put_codes<kCodes.low_bits>(values, 0, codes + block * planes.code_block + place * kCodes.low_bits * 4);
    if constexpr (kCodes.high_bits > 0)
      put_codes<kCodes.high_bits>(values, kCodes.low_bits,
                                  high + block * planes.high_block + place * kCodes.high_bits * 4);
  }
  const DTypeInfo& info = dtype_info(kType);
  const int64_t each = meta_bytes(kType, info.block_size), in_block = kSuperColumns / info.block_size;
  for (int64_t block = 0; block < cols / info.block_size; ++block)
    put_meta<kType>(source + block * info.block_bytes,
                    meta + block / in_block * planes.meta_block + block % in_block * each);
}

using PackRow = void (*)(const uint8_t*, int64_t, const PackedPlanes&, uint8_t*, uint8_t*, uint8_t*);
PackRow row_packer(DType type) {
  switch (type) {
    case DType::q4_0: return pack_row<DType::q4_0>;
    case DType::q4_1: return pack_row<DType::q4_1>;
    case DType::q5_0: return pack_row<DType::q5_0>;
    case DType::q5_1: return pack_row<DType::q5_1>;
    case DType::q8_0: return pack_row<DType::q8_0>;
    case DType::q2_k: return pack_row<DType::q2_k>;
    case DType::q3_k: return pack_row<DType::q3_k>;
    case DType::q4_k: return pack_row<DType::q4_k>;
    case DType::q5_k: return pack_row<DType::q5_k>;
    case DType::q6_k: return pack_row<DType::q6_k>;
    default: return nullptr;
  }
}

// Rows of the source go back to the system a head at a time where a head's rows are taken out of order.
int64_t whole_rows(const MatrixPart& part, int64_t rows) {
  return part.interleaved_head_size == 0 ? rows : rows / part.interleaved_head_size * part.interleaved_head_size;
}

}  // namespace

PackedPlanes packed_planes(DType type, int64_t cols) {
  PackedPlanes planes;
  const auto bytes = [](int64_t n) { return static_cast<uint32_t>(n); };
  if (type == DType::f32) {
    planes.code_stride = bytes((cols + 7) / 8 * 8 * 4);
    planes.code_block = bytes(4 * 8 * 4);
    planes.high_offset = planes.meta_offset = planes.panel_bytes = planes.code_stride * kPanelRows;
    return planes;
  }
  const bool plain = type == DType::f16 || type == DType::bf16;
  const Codes codes = plain ? Codes{16, 0} : codes_of(type);
  const int64_t block = 4 * packed_unit_columns(type);
  if (plain) cols = (cols + block - 1) / block * block;
  // Of one row.
  const int64_t code_bytes = cols * codes.low_bits / 8, high_bytes = cols * codes.high_bits / 8;
  const bool blocks = cols % block == 0, meta_blocks = cols % kSuperColumns == 0;
  const int64_t code_block = block * codes.low_bits / 8, high_block = block * codes.high_bits / 8;
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
  return planes;
}

std::vector<PackedPart> packed_parts(const MatrixSpec& spec) {
  check_matrix(spec);
  std::vector<PackedPart> parts;
  int64_t row = 0;
  for (const MatrixPart& part : spec.parts) {
    const TensorView& tensor = *part.tensor;
    if (parts.empty() || parts.back().format != tensor.dtype) parts.push_back({tensor.dtype, row, 0, 0});
    parts.back().rows += tensor.shape[0];
    row += tensor.shape[0];
  }
  size_t offset = 0;
  for (PackedPart& part : parts) {
    part.offset = offset;
    offset += part.bytes(spec.cols);
  }
  return parts;
}

Packer::Packer(const MatrixSpec& spec, Drop drop, ThreadPool* pool)
    : spec_(spec), drop_(std::move(drop)), pool_(pool), parts_(packed_parts(spec)) {
  bytes_ = parts_.back().offset + parts_.back().bytes(spec.cols);
  dropped_.assign(spec.parts.size(), 0);
}

const std::byte* Packer::source_row(int64_t row) const {
  for (const MatrixPart& part : spec_.parts) {
    const int64_t rows = part.tensor->shape[0];
    if (row < rows)
      return part.tensor->data.data() + static_cast<size_t>(part.source_row(row)) *
                                            dtype_bytes(part.tensor->dtype, static_cast<size_t>(spec_.cols));
    row -= rows;
  }
  return nullptr;
}

void Packer::pack_panel(const PackedPart& part, int64_t panel, std::byte* out) const {
  const PackedPlanes planes = packed_planes(part.format, spec_.cols);
  std::memset(out, 0, planes.panel_bytes);
  auto* to = reinterpret_cast<uint8_t*>(out);
  const int64_t rows = std::min(kPanelRows, part.rows - panel * kPanelRows);
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* source = source_row(part.first + panel * kPanelRows + r);
    uint8_t* codes = to + r * planes.code_stride;
    if (const PackRow pack = row_packer(part.format))
      pack(reinterpret_cast<const uint8_t*>(source), spec_.cols, planes, codes,
           to + planes.high_offset + r * planes.high_stride, to + planes.meta_offset + r * planes.meta_stride);
    else if (part.format == DType::f32)
      std::memcpy(codes, source, static_cast<size_t>(spec_.cols) * 4);
    else
      for (int64_t col = 0; col < spec_.cols; col += kBlockColumns)
        std::memcpy(codes + col / kBlockColumns * planes.code_block, source + col * 2,
                    static_cast<size_t>(std::min(kBlockColumns, spec_.cols - col)) * 2);
  }
}

void Packer::fill(size_t offset, std::span<std::byte> out) {
  int64_t done = 0;  // rows of the matrix that are complete
  for (const PackedPart& part : parts_) {
    const size_t end = std::min(offset + out.size(), part.offset + part.bytes(spec_.cols));
    const size_t begin = std::max(offset, part.offset);
    if (begin >= end) continue;
    const size_t panel_bytes = packed_planes(part.format, spec_.cols).panel_bytes;
    const auto first_panel = static_cast<int64_t>((begin - part.offset) / panel_bytes);
    const auto panels = static_cast<int64_t>((end - part.offset + panel_bytes - 1) / panel_bytes) - first_panel;
    const auto place = [&](int64_t panel) { return part.offset + static_cast<size_t>(panel) * panel_bytes; };
    const auto whole = [&](int64_t panel) { return begin <= place(panel) && place(panel) + panel_bytes <= end; };
    const auto put = [&](int64_t i) {
      if (whole(first_panel + i)) pack_panel(part, first_panel + i, out.data() + (place(first_panel + i) - offset));
    };
    if (pool_ != nullptr)
      pool_->run([&](Worker& worker) { worker.share(panels, put); });
    else
      for (int64_t i = 0; i < panels; ++i) put(i);
    for (const int64_t panel : {first_panel, first_panel + panels - 1}) {  // those that the range cuts
      const size_t first = place(panel), last = first + panel_bytes;
      if (!whole(panel)) {
        straddling_.resize(panel_bytes);
        pack_panel(part, panel, straddling_.data());
        const size_t from = std::max(begin, first), to = std::min(end, last);
        std::memcpy(out.data() + (from - offset), straddling_.data() + (from - first), to - from);
      }
      if (last <= end) done = part.first + std::min(part.rows, (panel + 1) * kPanelRows);
    }
  }
  if (drop_) drop_before(done);
}

void Packer::drop_before(int64_t row) {
  for (size_t i = 0; i < spec_.parts.size() && row > 0; ++i) {
    const TensorView& tensor = *spec_.parts[i].tensor;
    const int64_t rows = whole_rows(spec_.parts[i], std::min(row, tensor.shape[0]));
    const size_t bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(rows * spec_.cols));
    if (bytes > dropped_[i]) {
      drop_(tensor.data.subspan(dropped_[i], bytes - dropped_[i]));
      dropped_[i] = bytes;
    }
    row -= tensor.shape[0];
  }
}

}  // namespace ingot::metal
