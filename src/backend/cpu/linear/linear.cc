#include "backend/cpu/linear/linear.h"

#include <algorithm>

#include "backend/cpu/linear/by_slices.h"
#include "backend/cpu/linear/call.h"
#include "backend/cpu/ops.h"

namespace ingot::cpu {

namespace {

// Of a worker: panels that are taken apart, and sums of slices. That of all workers lies before the activations.
size_t own_bytes(int64_t rows, int64_t cols) { return kRoomBytes + by_slices_bytes(rows, cols); }

}  // namespace

size_t linear_scratch_bytes(int64_t rows, int64_t cols, int workers) {
  const size_t row_bytes = most_row_bytes(cols);
  const size_t redundant = align_up(static_cast<size_t>(std::min(rows, kRedundantRows)) * row_bytes, 64);
  return own_bytes(rows, cols) * static_cast<size_t>(workers) +
         std::max(align_up(static_cast<size_t>(rows) * row_bytes, 64), redundant * static_cast<size_t>(workers));
}

void linear(const LinearArgs& args, Worker& worker) {
  const bool gated = args.up != nullptr;
  const PackedMatrix::Impl& weight = args.weight->impl();
  const PackedMatrix::Impl& last = gated ? args.up->impl() : weight;  // whose results are stored, times the gate's
  const float* bias = gated ? args.up_bias : args.bias;
  Call call(weight, last, args.in, args.in_stride, args.rows, args.f32_in);
  auto* scratch = static_cast<uint8_t*>(args.scratch);
  const size_t own = own_bytes(args.rows, weight.cols);
  call.room = scratch + own * static_cast<size_t>(worker.index());
  call.prepare(scratch + own * static_cast<size_t>(worker.count()), worker);
  const StoreKind kind = args.activation   ? store_kind(*args.activation)
                         : args.accumulate ? StoreKind::add
                                           : StoreKind::set;
  if (!gated && goes_by_slices(call, weight))
    return multiply_by_slices(call, weight, args, kind, reinterpret_cast<float*>(call.room + kRoomBytes), worker);
  const auto store = call.kernels.store[static_cast<int>(kind)];
  const size_t panel_bytes = last.layout.segments[0].panel_bytes + (gated ? weight.layout.segments[0].panel_bytes : 0);
  // The panels at hand, where they were taken apart.
  const uint8_t* unpacked = nullptr;
  const uint8_t* unpacked_gate = nullptr;
  const auto prepare_panels = [&](const Segment& segment, int64_t panel, int panels, int64_t tiles) {
    const Segment& gate_segment = segment_of_panel(weight.layout, panel);
    const size_t bytes = call.unpacked_bytes(segment), gate_bytes = gated ? call.unpacked_bytes(gate_segment) : 0;
    unpacked = unpacked_gate = nullptr;
    const bool pays = tiles >= kUnpackTiles && bytes > 0 && (!gated || gate_bytes > 0);
    if (!pays || 2 * (bytes + gate_bytes) > kRoomBytes) return panels;
    panels = std::min(panels, std::max(2, static_cast<int>(kUnpackedBytes / (bytes + gate_bytes))));
    unpacked = call.room;
    call.unpack(last, segment, panel, panels, call.room);
    if (gated) {
      uint8_t* behind = call.room + static_cast<size_t>(panels) * bytes;
      unpacked_gate = behind;
      call.unpack(weight, gate_segment, panel, panels, behind);
    }
    return panels;
  };
  call.share_panels(last.layout, panel_bytes, worker, prepare_panels,
                    [&](const Segment& segment, int64_t panel, int panels, int64_t tile) {
                      alignas(64) float result[kTileFloats];
                      alignas(64) float gate[kTileFloats];
                      StoreArgs to = call.target(segment, panel, panels, tile, args.out, args.out_stride, bias);
                      if (gated) {
                        call.run_tile(weight, segment_of_panel(weight.layout, panel), panel, panels, tile, gate,
                                      unpacked_gate);
                        to.gate_tile = gate;
                        const int64_t col = segment.first_row + (panel - segment.first_panel) * kPanelRows;
                        to.gate_bias = args.bias == nullptr ? nullptr : args.bias + col;
                      }
                      call.run_tile(last, segment, panel, panels, tile, result, unpacked);
                      to.tile = result;
                      store(to);
                    });
}

size_t work_bytes(const LinearOp& op, const Context& device, int workers) {
  return linear_scratch_bytes(op.rows, device.matrix(op.weight).cols(), workers);
}

void run(const LinearOp& op, const Job& job) {
  const Context& device = job.device;
  const PackedMatrix& weight = device.matrix(op.weight);
  linear({.weight = &weight,
          .up = op.up ? &device.matrix(op.up) : nullptr,
          .in = device.floats(op.in),
          .rows = op.rows,
          .in_stride = weight.cols(),
          .bias = device.vector(op.bias),
          .up_bias = device.vector(op.up_bias),
          .out = device.floats(op.out),
          .out_stride = weight.rows(),
          .accumulate = op.accumulate,
          .f32_in = op.f32_in,
          .activation = op.activation,
          .scratch = device.work.data()},
         job.worker);
}

}  // namespace ingot::cpu
