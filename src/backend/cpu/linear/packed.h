#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/linear/format.h"
#include "backend/cpu/linear/kernels.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/memory.h"

// The inside of PackedMatrix, shared by packing and products.
namespace ingot::cpu {

// Consecutive rows of one format. A segment starts a new panel; its last panel may have rows that do not exist, all
// zero.
struct Segment {
  DType type = DType::f32;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_panel = 0;  // counted over the whole matrix
  size_t offset = 0;        // of its first panel, from the start of the buffer
  size_t panel_bytes = 0;

  int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

struct PackedLayout {
  std::vector<Segment> segments;
  int64_t panels = 0;
  size_t bytes = 0;
};

// The segment that holds a panel.
inline const Segment& segment_of_panel(const PackedLayout& layout, int64_t panel) {
  size_t i = layout.segments.size() - 1;
  while (layout.segments[i].first_panel > panel) --i;
  return layout.segments[i];
}

struct PackedMatrix::Impl {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<int64_t> slices;  // where each slice of the columns ends
  Isa isa = Isa::portable;
  const KernelTable* kernels = nullptr;
  PackedLayout layout;
  bool halves = false;     // some segment needs sums of half blocks
  bool quantized = false;  // some segment needs quantized activations
  bool bf16 = false;       // some segment is bf16
  std::shared_ptr<std::byte> data;

  const uint8_t* panel_data(const Segment& segment, int64_t panel) const {
    return reinterpret_cast<const uint8_t*>(data.get()) + segment.offset +
           static_cast<size_t>(panel - segment.first_panel) * segment.panel_bytes;
  }
};

}  // namespace ingot::cpu
