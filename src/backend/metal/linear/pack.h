#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "core/threads.h"

// Weight matrices in the layout of kernels/linear_formats.h. No Metal here: bytes in, bytes out.
namespace ingot::metal {

inline constexpr int64_t kPanelRows = 8;
inline constexpr int64_t kSuperColumns = 256;  // of a block of the K formats, and of its scales

// The PackedPlanes of the kernels, field for field. Bytes.
struct PackedPlanes {
  uint32_t code_stride = 0, high_stride = 0, meta_stride = 0;  // from row to row
  uint32_t code_block = 0, high_block = 0, meta_block = 0;  // from four units to the next, from 256 columns to the next
  uint32_t high_offset = 0, meta_offset = 0;                // from the start of a panel
  uint32_t panel_bytes = 0;
};
PackedPlanes packed_planes(DType type, int64_t cols);

// Columns that a lane takes at a time.
constexpr int64_t packed_unit_columns(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16 ? 8 : type == DType::q8_0 ? 16 : 32;
}

// Rows [first, first + rows) of a matrix, in one format; its panels start at `offset`.
struct PackedPart {
  DType format = DType::f16;
  int64_t first = 0, rows = 0;
  size_t offset = 0;

  size_t bytes(int64_t cols) const {
    return static_cast<size_t>((rows + kPanelRows - 1) / kPanelRows) * packed_planes(format, cols).panel_bytes;
  }
};

// Neighbouring tensors of one format make one part. Throws bad_file for tensors that do not add up to [rows, cols].
std::vector<PackedPart> packed_parts(const MatrixSpec& spec);

// Writes any range of the packed matrix, in order: panels are made as they are reached.
class Packer {
 public:
  using Drop = std::function<void(std::span<const std::byte>)>;
  // `drop`, when set, is called with source ranges that will not be read again. `pool`, when set, shares the work.
  Packer(const MatrixSpec& spec, Drop drop, ThreadPool* pool = nullptr);

  const std::vector<PackedPart>& parts() const { return parts_; }
  size_t bytes() const { return bytes_; }
  // out = bytes [offset, offset + out.size()) of the packed matrix. Calls go from front to back.
  void fill(size_t offset, std::span<std::byte> out);

 private:
  const std::byte* source_row(int64_t row) const;
  void pack_panel(const PackedPart& part, int64_t panel, std::byte* out) const;
  void drop_before(int64_t row);

  const MatrixSpec& spec_;
  Drop drop_;
  ThreadPool* pool_;
  std::vector<PackedPart> parts_;
  size_t bytes_ = 0;
  std::vector<size_t> dropped_;        // source bytes of each tensor given back already
  std::vector<std::byte> straddling_;  // a panel that ends in the next range
};

}  // namespace ingot::metal
