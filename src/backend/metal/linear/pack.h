#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/matrix.h"
#include "backend/metal/kernels/params.h"
#include "core/dtype.h"
#include "core/threads.h"

// Weight matrices in the layout of kernels/linear_formats.h. No Metal here: bytes in, bytes out.
namespace ingot::metal {

inline constexpr int64_t kPanelRows = 8;
inline constexpr int64_t kSuperColumns = 256;  // of a block of the K formats, and of its scales

PackedPlanes packed_planes(DType type, int64_t cols);

// The format as kernels are told of it: see PackedFormat.
constexpr uint32_t packed_format(DType type) {
  if (!is_block_quantized(type)) return static_cast<uint32_t>(type);
  const BlockLayout& layout = dtype_info(type).layout;
  const auto field = [](auto value, PackedField at) { return static_cast<uint32_t>(value) << at; };
  return field(layout.low_bits, kPackedLowBits) | field(layout.high_bits, kPackedHighBits) |
         field(layout.scales, kPackedScales) | field(layout.zero, kPackedZero) |
         field(layout.has_numbers(), kPackedNumbers);
}

// Columns that a lane takes at a time.
constexpr int64_t packed_unit_columns(DType type) {
  return !is_block_quantized(type) ? 8 : dtype_info(type).layout.low_bits == 8 ? 16 : 32;
}

// Consecutive rows of a matrix, in one format; its panels start at `offset`.
struct Segment {
  DType type = DType::f16;
  int64_t first_row = 0, rows = 0;
  size_t offset = 0;

  size_t bytes(int64_t cols) const {
    return static_cast<size_t>((rows + kPanelRows - 1) / kPanelRows) * packed_planes(type, cols).panel_bytes;
  }
};

// Neighbouring tensors of one format make one segment. Throws bad_file for tensors that do not add up to [rows, cols].
std::vector<Segment> packed_segments(const MatrixSpec& spec);

// Writes any range of the packed matrix, in order: panels are made as they are reached.
class Packer {
 public:
  // `pool`, when set, shares the work.
  Packer(const MatrixSpec& spec, DropPages drop, ThreadPool* pool = nullptr);

  const std::vector<Segment>& segments() const { return segments_; }
  size_t bytes() const { return bytes_; }
  // out = bytes [offset, offset + out.size()) of the packed matrix. Calls go from front to back.
  void fill(size_t offset, std::span<std::byte> out);

 private:
  void pack_panel(const Segment& segment, int64_t panel, std::byte* out) const;

  const int64_t cols_;
  MatrixSource source_;
  ThreadPool* pool_;
  std::vector<Segment> segments_;
  size_t bytes_ = 0;
  std::vector<std::byte> straddling_;  // a panel that ends in the next range
};

}  // namespace ingot::metal
