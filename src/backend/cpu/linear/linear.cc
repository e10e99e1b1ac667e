#include "backend/cpu/linear/linear.h"

#include <algorithm>

#include "backend/cpu/linear/call.h"

namespace ingot::cpu {

size_t linear_scratch_bytes(int64_t rows, int64_t cols, int workers) {
  const size_t row_bytes = quantized_row_bytes(cols, true) + bf16_row_bytes(cols);
  const size_t redundant = round_up(static_cast<size_t>(std::min(rows, kRedundantRows)) * row_bytes, 64);
  return std::max(round_up(static_cast<size_t>(rows) * row_bytes, 64), redundant * static_cast<size_t>(workers));
}

void linear(const LinearArgs& args, Worker& worker) {
  const PackedMatrix::Impl& matrix = args.weight->impl();
  Call call(matrix, matrix, args.in, args.in_stride, args.rows);
  call.prepare(args.scratch, worker);
  const StoreKind kind = args.activation   ? store_kind(*args.activation)
                         : args.accumulate ? StoreKind::add
                                           : StoreKind::set;
  const auto store = call.kernels.store[static_cast<int>(kind)];
  call.share_panels(matrix.layout, matrix.layout.segments[0].panel_bytes, worker,
                    [&](const Segment& segment, int64_t panel, int panels, int64_t tile) {
                      alignas(64) float result[kTileFloats];
                      call.run_tile(matrix, segment, panel, panels, tile, result);
                      StoreArgs to = call.target(segment, panel, panels, tile, args.out, args.out_stride, args.bias);
                      to.tile = result;
                      store(to);
                    });
}

void gated_linear(const GatedLinearArgs& args, Worker& worker) {
  const PackedMatrix::Impl& gate = args.gate->impl();
  const PackedMatrix::Impl& up = args.up->impl();
  Call call(gate, up, args.in, args.in_stride, args.rows);
  call.prepare(args.scratch, worker);
  const auto store = call.kernels.store[static_cast<int>(store_kind(args.activation))];
  const size_t panel_bytes = gate.layout.segments[0].panel_bytes + up.layout.segments[0].panel_bytes;
  call.share_panels(up.layout, panel_bytes, worker,
                    [&](const Segment& segment, int64_t panel, int panels, int64_t tile) {
                      alignas(64) float gate_result[kTileFloats];
                      alignas(64) float up_result[kTileFloats];
                      call.run_tile(gate, segment_of_panel(gate.layout, panel), panel, panels, tile, gate_result);
                      call.run_tile(up, segment, panel, panels, tile, up_result);
                      StoreArgs to = call.target(segment, panel, panels, tile, args.out, args.out_stride, args.up_bias);
                      to.tile = up_result;
                      to.gate_tile = gate_result;
                      const int64_t col = segment.first_row + (panel - segment.first_panel) * kPanelRows;
                      to.gate_bias = args.gate_bias == nullptr ? nullptr : args.gate_bias + col;
                      store(to);
                    });
}

}  // namespace ingot::cpu
