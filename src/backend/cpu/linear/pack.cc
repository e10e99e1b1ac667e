#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/linear/linear.h"
#include "backend/cpu/linear/packed.h"
#include "backend/cpu/linear/panel_codes.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/simd/common.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "core/half.h"
#include "formats/block_codes.h"

namespace ingot::cpu {
namespace {

size_t panel_bytes(DType type, int64_t cols) {
  const PanelFormat format = panel_format(type);
  if (is_block_quantized(type)) return align_up(blocks_bytes(format, cols / kBlock), 64);
  if (type == DType::bf16) return static_cast<size_t>((cols + 1) / 2) * 64;
  return align_up(static_cast<size_t>(cols) * format.record_bytes / kBlock, 64);
}

// Where record `block` of a panel starts.
template <DType kType>
size_t record_offset(int64_t block) {
  constexpr PanelFormat kFormat = panel_format(kType);
  return static_cast<size_t>(block) * kFormat.record_bytes +
         static_cast<size_t>(block / kFormat.group() + 1) * kFormat.header_bytes;
}

PackedLayout plan(const MatrixSpec& spec) {
  PackedLayout layout;
  int64_t row = 0;
  const int64_t group_rows = spec.groups > 1 ? spec.rows / spec.groups : spec.rows;
  for (const MatrixPart& part : spec.parts) {
    const DType type = part.tensor->dtype;
    // A matrix of a stack is a segment of its own.
    for (int64_t left = part.tensor->shape[0]; left > 0;) {
      const bool starts = spec.groups > 1 && row % group_rows == 0;
      if (layout.segments.empty() || layout.segments.back().type != type || starts) {
        Segment segment;
        segment.type = type;
        segment.first_row = row;
        segment.panel_bytes = panel_bytes(type, spec.cols);
        layout.segments.push_back(segment);
      }
      const int64_t rows = spec.groups > 1 ? std::min(left, group_rows - row % group_rows) : left;
      layout.segments.back().rows += rows;
      row += rows;
      left -= rows;
    }
  }
  for (Segment& segment : layout.segments) {
    segment.first_panel = layout.panels;
    segment.offset = layout.bytes;
    layout.panels += segment.panels();
    layout.bytes += static_cast<size_t>(segment.panels()) * segment.panel_bytes;
  }
  return layout;
}

// ---- one row of a panel ---------------------------------------------------------------------------------------------

void put_u32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

template <DType kType>
void put_codes(const uint32_t (&words)[8], int row, uint8_t* block) {
  constexpr PanelFormat kFormat = panel_format(kType);
  constexpr uint32_t kPairs = 0x03030303u, kBits = 0x01010101u;
  uint8_t* out = block + row * 4;
  if constexpr (kFormat.low_bits == 8) {
    for (int j = 0; j < 8; ++j) put_u32(out + j * 64, words[j]);
  } else if constexpr (kFormat.low_bits == 4) {
    for (int j = 0; j < 4; ++j) put_u32(out + j * 64, (words[j] & 0x0f0f0f0fu) | (words[j + 4] & 0x0f0f0f0fu) << 4);
  } else {
    for (int h = 0; h < 2; ++h) {
      uint32_t low = 0;
      for (int t = 0; t < 4; ++t) low |= (words[4 * h + t] & kPairs) << (2 * t);
      put_u32(out + h * 64, low);
    }
  }
  uint8_t* high = out + kFormat.low_bits * 64;
  if constexpr (kFormat.high_bits == 1) {
    uint32_t bits = 0;
    for (int j = 0; j < 8; ++j) bits |= (words[j] >> kFormat.low_bits & kBits) << j;
    put_u32(high, bits);
  } else if constexpr (kFormat.high_bits == 2) {
    for (int h = 0; h < 2; ++h) {
      uint32_t bits = 0;
      for (int t = 0; t < 4; ++t) bits |= (words[4 * h + t] >> kFormat.low_bits & kPairs) << (2 * t);
      put_u32(high + h * 64, bits);
    }
  }
}

// The scales of block `block` of a source row, and the header when it is the first of its super-block.
template <DType kType>
void put_scales(const uint8_t* source, int64_t block, int row, uint8_t* record) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const uint8_t* from = stored_block<kType>(source, block);
  const uint8_t* d = from + dtype_info(kType).layout.d_at;
  const int sub = static_cast<int>(static_cast<uint64_t>(block) % kFormat.group());
  uint8_t* scales = record + kFormat.code_bytes;
  if (sub == 0) {
    uint8_t* halves = kFormat.header_bytes > 0 ? record - kFormat.header_bytes : scales;
    std::memcpy(halves + 2 * row, d, 2);
    if constexpr (has_min(kFormat.scales)) std::memcpy(halves + 32 + 2 * row, d + 2, 2);
  }
  if constexpr (kFormat.header_bytes > 0) {
    const SubScale first = block_sub_scale<kType>(from, 2 * sub), second = block_sub_scale<kType>(from, 2 * sub + 1);
    uint8_t &a = scales[row], &b = scales[16 + row];
    if constexpr (kFormat.scales == Scales::super32_min) {
      a = static_cast<uint8_t>(first.scale);
      b = static_cast<uint8_t>(first.min);
    } else {  // two nibbles, or one number without a min
      a = static_cast<uint8_t>(first.scale | first.min << 4);
      b = static_cast<uint8_t>(second.scale | second.min << 4);
    }
  }
}

template <DType kType>
void pack_block(const uint8_t* source, int64_t block, int row, uint8_t* panel) {
  uint8_t* record = panel + record_offset<kType>(block);
  uint32_t words[8];
  block_codes<kType>(source, block, words);
  put_codes<kType>(words, row, record);
  put_scales<kType>(source, block, row, record);
}

// Columns [begin, end) of a row, whole super-blocks but for the last ones.
template <DType kType>
void pack_columns(const uint8_t* source, int64_t begin, int64_t end, int row, uint8_t* panel) {
  if constexpr (kType == DType::f32) {
    for (int64_t k = begin; k < end; ++k) std::memcpy(panel + k * 64 + row * 4, source + 4 * k, 4);
  } else if constexpr (kType == DType::f16) {
    for (int64_t k = begin; k < end; ++k) std::memcpy(panel + k * 32 + row * 2, source + 2 * k, 2);
  } else if constexpr (kType == DType::bf16) {
    for (int64_t k = begin; k < end - 1; k += 2) std::memcpy(panel + k * 32 + row * 4, source + 2 * k, 4);
    if (end % 2 != 0) std::memcpy(panel + (end - 1) * 32 + row * 4, source + 2 * (end - 1), 2);
  } else if constexpr (panel_format(kType).group() > 1) {
    for (int64_t first = begin / kBlock; first < end / kBlock; first += 8) {
      INGOT_UNROLL  // which bits belong to a block is then known when this is compiled
          for (int sub = 0; sub < 8; ++sub) pack_block<kType>(source, first + sub, row, panel);
    }
  } else {
    for (int64_t block = begin / kBlock; block < end / kBlock; ++block) pack_block<kType>(source, block, row, panel);
  }
}

template <DType kType>
void unpack_any_row(const uint8_t* panel, int64_t cols, int row, float* out) {
  if constexpr (kType == DType::f32) {
    for (int64_t k = 0; k < cols; ++k) std::memcpy(out + k, panel + k * 64 + row * 4, 4);
  } else if constexpr (kType == DType::f16) {
    for (int64_t k = 0; k < cols; ++k) out[k] = load_half(panel + k * 32 + row * 2);
  } else if constexpr (kType == DType::bf16) {
    for (int64_t k = 0; k < cols; ++k) out[k] = bf16_to_f32(load_u16(panel + k / 2 * 64 + row * 4 + k % 2 * 2));
  } else {
    constexpr PanelFormat kFormat = panel_format(kType);
    for (int64_t block = 0; block < cols / kBlock; ++block) {
      const uint8_t* record = panel + record_offset<kType>(block);
      const uint8_t* header = record - block % kFormat.group() * kFormat.record_bytes - kFormat.header_bytes;
      for (int half = 0; half < 2; ++half) {
        float scale, min;
        panel_scale<kType>(header, record, half, row, scale, min);
        for (int column = 16 * half; column < 16 * half + 16; ++column)
          *out++ = scale * static_cast<float>(panel_code<kType>(record, column, row) - kFormat.zero_point) + min;
      }
    }
  }
}

void pack_panel(const MatrixSource& source, const PackedMatrix::Impl& impl, int64_t panel) {
  const Segment& segment = segment_of_panel(impl.layout, panel);
  uint8_t* to = const_cast<uint8_t*>(impl.panel_data(segment, panel));
  const int64_t first = (panel - segment.first_panel) * kPanelRows;
  const int rows = static_cast<int>(std::min<int64_t>(kPanelRows, segment.rows - first));
  if (rows < kPanelRows) std::memset(to, 0, segment.panel_bytes);
  // An odd number of bf16 columns leaves half a pair unwritten, and rounding up leaves bytes at the end.
  std::memset(to + segment.panel_bytes - 64, 0, 64);
  const uint8_t* from[kPanelRows];
  for (int row = 0; row < rows; ++row) from[row] = source.row(segment.first_row + first + row);
  // A few columns of all rows, then the next: every line of the panel is written by all rows, and stays in the first
  // cache until it is full.
  with_dtype(segment.type, [&]<DType kType>() {
    for (int64_t begin = 0; begin < impl.cols; begin += kSuper)
      for (int row = 0; row < rows; ++row)
        pack_columns<kType>(from[row], begin, std::min<int64_t>(begin + kSuper, impl.cols), row, to);
  });
}

// The row that a panel begins with; past the last panel, the number of rows.
int64_t first_row(const PackedLayout& layout, int64_t panel) {
  const Segment& segment = segment_of_panel(layout, std::min(panel, layout.panels - 1));
  return segment.first_row + std::min(segment.rows, (panel - segment.first_panel) * kPanelRows);
}

}  // namespace

PackedMatrix::PackedMatrix() : impl_(std::make_unique<Impl>()) {}
PackedMatrix::PackedMatrix(PackedMatrix&&) noexcept = default;
PackedMatrix& PackedMatrix::operator=(PackedMatrix&&) noexcept = default;
PackedMatrix::~PackedMatrix() = default;
int64_t PackedMatrix::rows() const { return impl_->rows; }
int64_t PackedMatrix::cols() const { return impl_->cols; }
size_t PackedMatrix::bytes() const { return impl_->layout.bytes; }
Isa PackedMatrix::isa() const { return impl_->isa; }

size_t packed_bytes(const MatrixSpec& spec, Isa) {
  check_matrix(spec);
  return plan(spec).bytes;
}

PackedMatrix::PackedMatrix(const MatrixSpec& spec, Isa isa) : PackedMatrix() {
  require_isa(isa);
  check_matrix(spec);
  Impl& impl = *impl_;
  impl.rows = spec.rows;
  impl.cols = spec.cols;
  impl.slices = spec.slices.empty() ? std::vector<int64_t>{spec.cols} : spec.slices;
  impl.isa = isa;
  impl.kernels = kernels_for(isa);
  impl.layout = plan(spec);
  for (const Segment& segment : impl.layout.segments) {
    impl.halves |= needs_halves(segment.type);
    impl.quantized |= !is_float_format(segment.type);
    impl.bf16 |= segment.type == DType::bf16;
  }
}

PackedMatrix packed_before(const MatrixSpec& spec, Isa isa, std::shared_ptr<std::byte> data) {
  PackedMatrix matrix(spec, isa);
  matrix.impl_->data = std::move(data);
  return matrix;
}

PackedMatrix pack_matrix(const MatrixSpec& spec, Isa isa, const DropPages& drop, ThreadPool* pool) {
  PackedMatrix matrix(spec, isa);
  PackedMatrix::Impl& impl = *matrix.impl_;
  impl.data = allocate_weights(impl.layout.bytes);

  // In pieces of about a MiB, each given back by whoever packed it: no more of the source is held than is being read.
  MatrixSource source(spec, drop);
  const size_t panel_bytes = std::max<size_t>(1, impl.layout.bytes / static_cast<size_t>(impl.layout.panels));
  const int64_t step = std::max<int64_t>(1, static_cast<int64_t>((size_t{1} << 20) / panel_bytes));
  const auto pack_piece = [&](int64_t piece) {
    const int64_t first = piece * step, last = std::min(impl.layout.panels, first + step);
    for (int64_t panel = first; panel < last; ++panel) pack_panel(source, impl, panel);
    source.drop_rows(first_row(impl.layout, first), first_row(impl.layout, last));
  };
  const int64_t pieces = ceil_div(impl.layout.panels, step);
  if (pool != nullptr && pieces > 1) {
    pool->run([&](Worker& worker) { worker.share(pieces, pack_piece); });
  } else {
    for (int64_t piece = 0; piece < pieces; ++piece) pack_piece(piece);
  }
  source.drop_before(spec.rows);  // what pieces share
  return matrix;
}

void unpack_row(const PackedMatrix& matrix, int64_t row, float* out) {
  const PackedMatrix::Impl& impl = matrix.impl();
  size_t i = impl.layout.segments.size() - 1;
  while (impl.layout.segments[i].first_row > row) --i;
  const Segment& segment = impl.layout.segments[i];
  const int64_t in_segment = row - segment.first_row;
  const uint8_t* panel = impl.panel_data(segment, segment.first_panel + in_segment / kPanelRows);
  with_dtype(segment.type, [&]<DType kType>() {
    unpack_any_row<kType>(panel, impl.cols, static_cast<int>(in_segment % kPanelRows), out);
  });
}

}  // namespace ingot::cpu
