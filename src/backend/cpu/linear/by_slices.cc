#include "backend/cpu/linear/by_slices.h"

#include <algorithm>

namespace ingot::cpu {
namespace {

// Columns [first, last) of a row, in blocks [block, block + blocks).
struct Slice {
  int64_t first = 0, last = 0, block = 0, blocks = 0;
};

// Some panels of a segment, one slice of them, and how kernels find them.
struct SlicePanels {
  const Segment* segment;
  int64_t panel;
  int panels;
  const uint8_t* unpacked = nullptr;  // null: as they are stored
  size_t unpacked_bytes = 0;          // from one to the next
};

size_t records_bytes(int64_t blocks, int rows, bool halves) {
  return static_cast<size_t>(blocks) * activation_record_bytes(rows, halves);
}

// One slice of the panels against one tile.
void run_slice(const Call& call, const PackedMatrix::Impl& weight, const SlicePanels& panels, const Slice& slice,
               int64_t tile, bool from_memory, float* out) {
  const int rows = call.tile_rows(tile);
  const int64_t row = call.tile_start(tile), columns = slice.last - slice.first;
  TileArgs args = {};
  args.panels = panels.panels;
  args.slices = 1;
  args.slice_ends = &columns;
  args.halves = call.halves;
  args.out = out;
  args.act = call.quantized + row * quantized_row_bytes(call.blocks, call.halves) +
             activation_bytes(rows, slice.block, call.halves);
  const auto type = static_cast<int>(panels.segment->type);
  if (panels.unpacked != nullptr) {
    args.panel = panels.unpacked;
    args.panel_bytes = panels.unpacked_bytes;
    return call.kernels.unpacked_tile[type][rows - 1](args);
  }
  args.panel = weight.panel_data(*panels.segment, panels.panel) +
               blocks_bytes(panel_format(panels.segment->type), slice.block);
  args.panel_bytes = panels.segment->panel_bytes;
  args.from_memory = from_memory;
  call.kernels.tile[type][rows - 1](args);
}

// total += other, as add_slice() does.
void add_to(float* total, const float* other, size_t n) {
  for (size_t i = 0; i < n; ++i) total[i] = total[i] + other[i];
}

}  // namespace

size_t by_slices_bytes(int64_t rows, int64_t cols) {
  const bool wide = records_bytes(most_blocks(cols), kMaxTileRows, true) >= kWideTileBytes;
  return wide && rows >= kUnpackTiles ? 2 * kSliceTiles * kTileFloats * sizeof(float) : 0;
}

bool goes_by_slices(const Call& call, const PackedMatrix::Impl& weight) {
  if (call.slices.size() < 2 || call.tiles < kUnpackTiles || !call.quantize || call.bf16) return false;
  return records_bytes(call.blocks, call.kernels.max_tile, call.halves) >= kWideTileBytes &&
         std::ranges::all_of(weight.layout.segments,
                             [](const Segment& segment) { return is_block_quantized(segment.type); });
}

void multiply_by_slices(Call& call, const PackedMatrix::Impl& weight, const LinearArgs& to, StoreKind kind,
                        float* sums, Worker& worker) {
  const auto store = call.kernels.store[static_cast<int>(kind)];
  Slice slices[MatrixSpec::kMostSlices];
  int64_t block = 0, column = 0;
  for (size_t s = 0; s < call.slices.size(); ++s) {
    slices[s] = {column, call.slices[s], block, ceil_div(call.slices[s] - column, kBlock)};
    column = slices[s].last;
    block += slices[s].blocks;
  }
  // The sum of two slices each, of all tiles at hand.
  float* pairs[] = {sums, sums + kSliceTiles * kTileFloats};
  const int64_t share = weight.layout.panels / (worker.count() * kChunksPerWorker) / kMaxUnitPanels * kMaxUnitPanels;
  const int64_t chunk = std::clamp<int64_t>(share, kMaxUnitPanels, kMaxTilePanels);

  const auto multiply = [&](SlicePanels panels, int64_t first_tile, int64_t last_tile) {
    const size_t floats = static_cast<size_t>(panels.panels) * kMaxTileRows * kPanelRows;  // of a tile, at most
    alignas(64) float second[kTileFloats];
    for (size_t s = 0; s < call.slices.size(); ++s) {
      const Slice& slice = slices[s];
      panels.unpacked = nullptr;
      panels.unpacked_bytes = align_up(unpacked_panel_bytes(panels.segment->type, slice.blocks), 64);
      if (call.unpacked_bytes(*panels.segment) > 0 &&
          panels.unpacked_bytes * static_cast<size_t>(panels.panels) <= kRoomBytes) {
        const uint8_t* from = weight.panel_data(*panels.segment, panels.panel) +
                              blocks_bytes(panel_format(panels.segment->type), slice.block);
        for (int i = 0; i < panels.panels; ++i)
          call.kernels.unpack[static_cast<int>(panels.segment->type)](
              from + static_cast<size_t>(i) * panels.segment->panel_bytes, slice.blocks,
              call.room + static_cast<size_t>(i) * panels.unpacked_bytes);
        panels.unpacked = call.room;
      }
      for (int64_t tile = first_tile; tile < last_tile; ++tile) {
        float* total = pairs[s / 2] + static_cast<size_t>(tile - first_tile) * floats;
        run_slice(call, weight, panels, slice, tile, tile == first_tile, s % 2 == 0 ? total : second);
        const size_t count = static_cast<size_t>(panels.panels * call.tile_rows(tile)) * kPanelRows;
        if (s % 2 == 1) add_to(total, second, count);
        if (s + 1 < call.slices.size()) continue;
        float* result = pairs[0] + static_cast<size_t>(tile - first_tile) * floats;
        if (s > 1) add_to(result, total, count);
        StoreArgs args =
            call.target(*panels.segment, panels.panel, panels.panels, tile, to.out, to.out_stride, to.bias);
        args.tile = result;
        store(args);
      }
    }
  };
  worker.share(ceil_div(weight.layout.panels, chunk), [&](int64_t i) {
    call.convert_own();
    const int64_t end = std::min(weight.layout.panels, (i + 1) * chunk);
    for (int64_t panel = i * chunk; panel < end;) {
      const Segment& segment = segment_of_panel(weight.layout, panel);
      const int64_t stop = std::min(end, segment.first_panel + segment.panels());
      for (int64_t first = 0; first < call.tiles; first += kSliceTiles)
        multiply({&segment, panel, static_cast<int>(stop - panel)}, first, std::min(call.tiles, first + kSliceTiles));
      panel = stop;
    }
  });
}

}  // namespace ingot::cpu
