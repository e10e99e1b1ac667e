#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "backend/cpu/linear/packed.h"
#include "core/ceil_div.h"
#include "core/threads.h"

// How one product is cut into tiles of rows and panels of weights; shared by plain products and those of experts.
namespace ingot::cpu {

// Up to this many rows every worker converts the activations for itself, before its first panels: cheaper than waiting.
inline constexpr int64_t kRedundantRows = 2;

// Activations that stay in a core's second-level cache while panels pass by; or panels, where that leaves less to be
// read from farther away: a tile of wide rows takes hundreds of KiB.
inline constexpr size_t kActivationBlockBytes = size_t{384} << 10;
inline constexpr size_t kPanelBlockBytes = size_t{640} << 10;

// Weights handed to a worker at a time: at least this much, when they are read once, and few enough chunks that the
// processor's prefetchers seldom start anew.
inline constexpr size_t kChunkBytes = size_t{16} << 10;
inline constexpr int64_t kChunksPerWorker = 4;

// From so many tiles on the codes of panels are taken apart once, where the kernels know how: as many panels as leave
// activations their place in the second-level cache, or two, for which a worker has room in all but the widest rows.
inline constexpr int64_t kUnpackTiles = 8;
inline constexpr size_t kUnpackedBytes = size_t{256} << 10;
inline constexpr size_t kRoomBytes = size_t{512} << 10;

// Bytes of converted activations of a row, in blocks of columns. Every slice begins a block.
inline size_t quantized_row_bytes(int64_t blocks, bool halves) { return activation_bytes(1, blocks, halves); }
inline size_t bf16_row_bytes(int64_t blocks) { return static_cast<size_t>(blocks) * kBlock * 2; }
inline int64_t most_blocks(int64_t cols) { return ceil_div(cols, kBlock) + MatrixSpec::kMostSlices - 1; }
inline size_t most_row_bytes(int64_t cols) {
  return quantized_row_bytes(most_blocks(cols), true) + bf16_row_bytes(most_blocks(cols));
}

// One call, as one worker sees it. Rows are cut into tiles of nearly equal size; in converted form tiles follow each
// other in memory, the rows of each interleaved.
struct Call {
  const KernelTable& kernels;
  const float* in;
  int64_t in_stride;
  int64_t rows;
  std::span<const int64_t> slices;  // where each ends
  int64_t blocks = 0;               // of a row
  bool quantize;                    // some weights want quantized activations,
  bool halves;                      // with sums of half blocks
  bool bf16;                        // some weights want bf16 activations
  int64_t tiles;
  uint8_t* quantized = nullptr;
  uint8_t* rounded = nullptr;
  int64_t first_tile = 0;    // of those that meet some panels one after another
  bool unconverted = false;  // they are still to be filled, by this worker for itself
  uint8_t* room = nullptr;   // of this worker, for panels that are taken apart: kRoomBytes

  // One that rounds to bf16 is AVX-512 with more instructions; all ISAs pack alike.
  static const KernelTable& table_of(const PackedMatrix::Impl& a, bool f32_in) {
    return f32_in && a.kernels->round_to_bf16 != nullptr ? *kernels_for(Isa::avx512_vnni) : *a.kernels;
  }

  Call(const PackedMatrix::Impl& a, const PackedMatrix::Impl& b, const float* in_, int64_t in_stride_, int64_t rows_,
       bool f32_in = false)
      : kernels(table_of(a, f32_in)), in(in_), in_stride(in_stride_), rows(rows_), slices(a.slices) {
    int64_t column = 0;
    for (const int64_t end : slices) {
      blocks += ceil_div(end - column, kBlock);
      column = end;
    }
    quantize = a.quantized || b.quantized;
    halves = a.halves || b.halves;
    bf16 = kernels.round_to_bf16 != nullptr && (a.bf16 || b.bf16);
    tiles = ceil_div(rows, kernels.max_tile);
  }

  int64_t tile_start(int64_t tile) const { return rows * tile / tiles; }
  int tile_rows(int64_t tile) const { return static_cast<int>(tile_start(tile + 1) - tile_start(tile)); }
  size_t row_bytes() const {
    return std::max<size_t>((quantize ? quantized_row_bytes(blocks, halves) : 0) + (bf16 ? bf16_row_bytes(blocks) : 0),
                            64);
  }

  // Blocks [first, last) of a tile. What is an outlier is asked within its slice, which may be all that a rank has.
  void convert(int64_t tile, int64_t first, int64_t last) const {
    const int64_t row = tile_start(tile);
    const int tile_rows = this->tile_rows(tile);
    int64_t column = 0, block = 0;  // where the slice begins
    for (const int64_t end : slices) {
      const int64_t cols = end - column, count = ceil_div(cols, kBlock);
      const int64_t from = std::max<int64_t>(first - block, 0), to = std::min(last - block, count);
      const float* x = in + row * in_stride + column;
      if (quantize && from < to)
        kernels.quantize(
            x, in_stride, tile_rows, cols, from, to, halves,
            quantized + row * quantized_row_bytes(blocks, halves) + activation_bytes(tile_rows, block, halves));
      if (bf16 && from < to)
        kernels.round_to_bf16(x, in_stride, tile_rows, cols, from, to,
                              rounded + row * bf16_row_bytes(blocks) + tile_rows * bf16_row_bytes(block));
      column = end;
      block += count;
    }
  }

  // Brings the activations into the kernels' form.
  void prepare(void* scratch, Worker& worker) {
    if (!quantize && !bf16) return;
    const bool redundant = rows <= kRedundantRows && worker.count() > 1;
    const size_t share = align_up(static_cast<size_t>(rows) * row_bytes(), 64);
    quantized = static_cast<uint8_t*>(scratch) + (redundant ? static_cast<size_t>(worker.index()) * share : 0);
    rounded = quantized + (quantize ? static_cast<size_t>(rows) * quantized_row_bytes(blocks, halves) : 0);
    unconverted = redundant || worker.count() == 1;
    if (unconverted) return;
    const int64_t pieces = std::clamp<int64_t>(4 * worker.count() / tiles, 1, ceil_div(blocks, 4));
    worker.share(tiles * pieces, [&](int64_t i) {
      const int64_t piece = i % pieces;
      convert(i / pieces, blocks * piece / pieces, blocks * (piece + 1) / pieces);
    });
  }

  // What prepare() has left to this worker.
  void convert_own() {
    if (!std::exchange(unconverted, false)) return;
    for (int64_t tile = 0; tile < tiles; ++tile) convert(tile, 0, blocks);
  }

  // Bytes of one of the segment's panels whose codes were taken apart; 0: they are not.
  size_t unpacked_bytes(const Segment& segment) const {
    const auto* tiles_of = kernels.unpacked_tile[static_cast<int>(segment.type)];
    const int64_t least = rows / tiles;
    if (room == nullptr || least == 0 || tiles_of[least - 1] == nullptr) return 0;
    return align_up(unpacked_panel_bytes(segment.type, blocks), 64);
  }
  void unpack(const PackedMatrix::Impl& matrix, const Segment& segment, int64_t panel, int panels, uint8_t* out) const {
    for (int i = 0; i < panels; ++i)
      kernels.unpack[static_cast<int>(segment.type)](matrix.panel_data(segment, panel + i), blocks,
                                                     out + static_cast<size_t>(i) * unpacked_bytes(segment));
  }

  // unpacked: the panels as unpack() left them, or null.
  void run_tile(const PackedMatrix::Impl& matrix, const Segment& segment, int64_t panel, int panels, int64_t tile,
                float* out, const uint8_t* unpacked = nullptr) const {
    const int64_t row = tile_start(tile);
    alignas(64) float waiting[kWaitingFloats];
    TileArgs args;
    args.waiting = waiting;
    args.panel = matrix.panel_data(segment, panel);
    args.panel_bytes = segment.panel_bytes;
    args.panels = panels;
    args.slices = static_cast<int>(slices.size());
    args.slice_ends = slices.data();
    args.act = nullptr;
    if (is_block_quantized(segment.type)) args.act = quantized + row * quantized_row_bytes(blocks, halves);
    if (segment.type == DType::bf16 && bf16) args.act = rounded + row * bf16_row_bytes(blocks);
    args.halves = halves;
    args.in = in + row * in_stride;
    args.in_stride = in_stride;
    args.out = out;
    if (unpacked != nullptr) {
      args.panel = unpacked;
      args.panel_bytes = unpacked_bytes(segment);
    } else {
      args.from_memory = tile == first_tile;
    }
    const auto& run = unpacked != nullptr ? kernels.unpacked_tile : kernels.tile;
    run[static_cast<int>(segment.type)][tile_rows(tile) - 1](args);
  }

  // f(segment, panel, panels, tile) for all panels and tiles, shared among the workers a chunk of panels at a time. A
  // few panels meet all tiles (as many as stay in cache) before the next ones, so that weights come from memory once.
  // Before that prepare_panels(segment, panel, panels, tiles) is asked how many of them it wants.
  template <typename P, typename F>
  void share_panels(const PackedLayout& layout, size_t panel_bytes, Worker& worker, P&& prepare_panels, F&& f) {
    const int64_t least = std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes / panel_bytes) / tiles);
    int64_t chunk = std::max(least, layout.panels / (worker.count() * kChunksPerWorker));
    if (chunk > kMaxUnitPanels) chunk = align_up(chunk, kMaxUnitPanels);  // one that is left over costs as much as two
    if (worker.count() == 1) chunk = layout.panels;
    const int64_t cached_rows = static_cast<int64_t>(kActivationBlockBytes / row_bytes());
    int64_t cached_tiles = std::max<int64_t>(1, cached_rows / kernels.max_tile);
    const int64_t cached_panels =
        std::clamp<int64_t>(static_cast<int64_t>(kPanelBlockBytes / panel_bytes), 1, kMaxTilePanels);
    int64_t most_panels = kMaxTilePanels;
    // What a tile times a panel reads from afar: a part of the panel, or of the tile.
    const size_t tile_bytes = row_bytes() * static_cast<size_t>(kernels.max_tile);
    if (tiles > cached_tiles &&
        panel_bytes / static_cast<size_t>(cached_tiles) > tile_bytes / static_cast<size_t>(cached_panels)) {
      cached_tiles = tiles;
      most_panels = cached_panels;
    }
    worker.share(ceil_div(layout.panels, chunk), [&](int64_t i) {
      convert_own();
      const int64_t end = std::min(layout.panels, (i + 1) * chunk);
      for (first_tile = 0; first_tile < tiles; first_tile += cached_tiles) {
        const int64_t last_tile = std::min(tiles, first_tile + cached_tiles);
        for (int64_t panel = i * chunk; panel < end;) {
          const Segment& segment = segment_of_panel(layout, panel);
          int64_t stop = std::min({end, segment.first_panel + segment.panels(), panel + most_panels});
          stop = panel + prepare_panels(segment, panel, static_cast<int>(stop - panel), last_tile - first_tile);
          for (int64_t tile = first_tile; tile < last_tile; ++tile)
            f(segment, panel, static_cast<int>(stop - panel), tile);
          panel = stop;
        }
      }
    });
  }

  // Where the results of these panels and this tile go.
  StoreArgs target(const Segment& segment, int64_t panel, int panels, int64_t tile, float* out, int64_t out_stride,
                   const float* bias) const {
    const int64_t in_segment = (panel - segment.first_panel) * kPanelRows;
    const int64_t col = segment.first_row + in_segment;
    StoreArgs to = {};
    to.bias = bias == nullptr ? nullptr : bias + col;
    to.rows = tile_rows(tile);
    to.cols = static_cast<int>(std::min<int64_t>(panels * kPanelRows, segment.rows - in_segment));
    to.out = out + tile_start(tile) * out_stride + col;
    to.out_stride = out_stride;
    return to;
  }
};

inline constexpr int kTileFloats = kMaxTilePanels * kMaxTileRows * kPanelRows;

inline StoreKind store_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::silu: return StoreKind::silu;
    case ActivationKind::gelu_tanh: return StoreKind::gelu_tanh;
    case ActivationKind::gelu: return StoreKind::gelu;
  }
  return StoreKind::silu;
}

}  // namespace ingot::cpu
