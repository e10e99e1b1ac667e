#include "backend/cpu/linear/linear.h"

#include <algorithm>

#include "backend/cpu/linear/packed.h"

namespace ingot::cpu {
namespace {

// Below this many rows every worker quantizes the activations for itself: cheaper than a barrier.
constexpr int64_t kRedundantRows = 2;

// Activations that stay in a core's second-level cache while panels pass by.
constexpr size_t kActivationBlockBytes = size_t{384} << 10;

// Work handed out at a time, in bytes of weights times passes over them: a few microseconds.
constexpr size_t kChunkBytes = size_t{16} << 10;

size_t activation_bytes(int64_t rows, int64_t cols, bool halves) {
  return static_cast<size_t>((cols + kBlock - 1) / kBlock) * activation_record_bytes(1, halves) *
         static_cast<size_t>(rows);
}

// One call, as one worker sees it.
struct Call {
  const KernelTable* kernels;
  const float* in;
  int64_t in_stride;
  int64_t rows;
  int64_t cols;
  bool halves;
  const uint8_t* act;  // quantized activations of all rows

  const uint8_t* tile_act(int64_t row) const { return act + activation_bytes(row, cols, halves); }
};

// Brings the activations into the kernels' form. Tiles follow each other in memory, each with its own rows interleaved.
void prepare(Call& call, void* scratch, Worker& worker) {
  const KernelTable& kernels = *call.kernels;
  const size_t bytes = round_up(activation_bytes(call.rows, call.cols, call.halves), 64);
  const int64_t blocks = call.cols / kBlock;
  const bool redundant = call.rows <= kRedundantRows && worker.count() > 1;
  uint8_t* act = static_cast<uint8_t*>(scratch) + (redundant ? static_cast<size_t>(worker.index()) * bytes : 0);
  call.act = act;
  auto quantize = [&](int64_t row, int tile, int64_t first, int64_t last) {
    kernels.quantize(call.in + row * call.in_stride, call.in_stride, tile, first, last, call.halves,
                     act + activation_bytes(row, call.cols, call.halves));
  };
  if (redundant || worker.count() == 1) {
    for (int64_t row = 0; row < call.rows;) {
      const int tile = kernels.tile_rows(call.rows - row);
      quantize(row, tile, 0, blocks);
      row += tile;
    }
    return;
  }
  const int64_t tiles = (call.rows + kernels.max_tile - 1) / kernels.max_tile;
  const int64_t pieces = std::clamp<int64_t>(4 * worker.count() / tiles, 1, std::max<int64_t>(1, blocks / 4));
  worker.share(tiles * pieces, [&](int64_t i) {
    const int64_t piece = i % pieces;
    // A piece covers max_tile rows, which may be several tiles when they are the last ones.
    const int64_t end = std::min(call.rows, (i / pieces + 1) * kernels.max_tile);
    for (int64_t row = i / pieces * kernels.max_tile; row < end;) {
      const int tile = kernels.tile_rows(call.rows - row);
      quantize(row, tile, blocks * piece / pieces, blocks * (piece + 1) / pieces);
      row += tile;
    }
  });
}

void run_tile(const Call& call, const PackedMatrix::Impl& matrix, const Segment& segment, int64_t panel, int64_t row,
              int tile, float* out) {
  TileArgs args;
  args.codes = matrix.panel_data(segment, panel);
  args.scales = args.codes + segment.code_bytes;
  args.cols = call.cols;
  args.act = call.tile_act(row);
  args.in = call.in + row * call.in_stride;
  args.in_stride = call.in_stride;
  args.halves = call.halves;
  args.out = out;
  call.kernels->tile[static_cast<int>(segment.type)][tile - 1](args);
}

// Shares panels among the workers, a chunk at a time; f(panel, row, tile) for every panel and tile of rows.
template <typename F>
void share_panels(const Call& call, int64_t panels, size_t panel_bytes, Worker& worker, F&& f) {
  const int64_t passes = (call.rows + call.kernels->max_tile - 1) / call.kernels->max_tile;
  const int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes / panel_bytes) / passes);
  const int64_t max_tile = call.kernels->max_tile;
  const int64_t fitting = static_cast<int64_t>(kActivationBlockBytes / activation_bytes(1, call.cols, call.halves));
  const int64_t row_block = std::max(max_tile, fitting / max_tile * max_tile);
  worker.share((panels + chunk - 1) / chunk, [&](int64_t i) {
    const int64_t last = std::min(panels, (i + 1) * chunk);
    for (int64_t first_row = 0; first_row < call.rows; first_row += row_block) {
      const int64_t end_row = std::min(call.rows, first_row + row_block);
      for (int64_t panel = i * chunk; panel < last; ++panel) {
        for (int64_t row = first_row; row < end_row;) {
          const int tile = call.kernels->tile_rows(call.rows - row);
          f(panel, row, tile);
          row += tile;
        }
      }
    }
  });
}

StoreKind store_kind(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::silu: return StoreKind::silu;
    case ActivationKind::gelu_tanh: return StoreKind::gelu_tanh;
    case ActivationKind::gelu: return StoreKind::gelu;
  }
  return StoreKind::silu;
}

}  // namespace

size_t linear_scratch_bytes(int64_t rows, int64_t cols, int workers) {
  const size_t shared = round_up(activation_bytes(rows, cols, true), 64);
  const size_t redundant =
      round_up(activation_bytes(std::min(rows, kRedundantRows), cols, true), 64) * static_cast<size_t>(workers);
  return std::max(shared, redundant);
}

void linear(const LinearArgs& args, Worker& worker) {
  const PackedMatrix::Impl& matrix = args.weight->impl();
  Call call{matrix.kernels, args.in, args.in_stride, args.rows, matrix.cols, matrix.halves, nullptr};
  if (matrix.quantized) prepare(call, args.scratch, worker);
  const auto store = matrix.kernels->store[static_cast<int>(args.accumulate ? StoreKind::add : StoreKind::set)];
  share_panels(call, matrix.layout.panels, matrix.layout.segments[0].panel_bytes, worker,
               [&](int64_t panel, int64_t row, int tile) {
                 alignas(64) float result[16 * kPanelRows];
                 const Segment& segment = matrix.segment_of_panel(panel);
                 run_tile(call, matrix, segment, panel, row, tile, result);
                 const int64_t in_segment = (panel - segment.first_panel) * kPanelRows;
                 const int64_t col = segment.first_row + in_segment;
                 StoreArgs to = {};
                 to.tile = result;
                 to.bias = args.bias ? args.bias + col : nullptr;
                 to.rows = tile;
                 to.cols = static_cast<int>(std::min<int64_t>(kPanelRows, segment.rows - in_segment));
                 to.out = args.out + row * args.out_stride + col;
                 to.out_stride = args.out_stride;
                 store(to);
               });
}

void gated_linear(const GatedLinearArgs& args, Worker& worker) {
  const PackedMatrix::Impl& gate = args.gate->impl();
  const PackedMatrix::Impl& up = args.up->impl();
  Call call{up.kernels, args.in, args.in_stride, args.rows, up.cols, gate.halves || up.halves, nullptr};
  if (gate.quantized || up.quantized) prepare(call, args.scratch, worker);
  const auto store = up.kernels->store[static_cast<int>(store_kind(args.activation))];
  const size_t panel_bytes = gate.layout.segments[0].panel_bytes + up.layout.segments[0].panel_bytes;
  share_panels(call, up.layout.panels, panel_bytes, worker, [&](int64_t panel, int64_t row, int tile) {
    alignas(64) float gate_result[16 * kPanelRows];
    alignas(64) float up_result[16 * kPanelRows];
    const Segment& segment = up.segment_of_panel(panel);
    run_tile(call, gate, gate.segment_of_panel(panel), panel, row, tile, gate_result);
    run_tile(call, up, segment, panel, row, tile, up_result);
    const int64_t in_segment = (panel - segment.first_panel) * kPanelRows;
    const int64_t col = segment.first_row + in_segment;
    StoreArgs to;
    to.tile = up_result;
    to.gate_tile = gate_result;
    to.bias = args.up_bias ? args.up_bias + col : nullptr;
    to.gate_bias = args.gate_bias ? args.gate_bias + col : nullptr;
    to.rows = tile;
    to.cols = static_cast<int>(std::min<int64_t>(kPanelRows, segment.rows - in_segment));
    to.out = args.out + row * args.out_stride + col;
    to.out_stride = args.out_stride;
    store(to);
  });
}

}  // namespace ingot::cpu
