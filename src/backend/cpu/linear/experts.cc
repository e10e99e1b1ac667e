#include <algorithm>
#include <cstring>

#include "backend/cpu/linear/call.h"
#include "backend/cpu/linear/linear.h"
#include "backend/cpu/ops.h"

namespace ingot::cpu {
namespace {

// The experts that have rows, and the tiles of their rows, in order. All are found by walking `starts`: a few hundred
// numbers, for pieces of work of many thousand.
struct Groups {
  const int32_t* starts;
  int64_t experts;
  int max_tile;

  int64_t rows(int64_t expert) const { return starts[expert + 1] - starts[expert]; }
  int64_t tiles(int64_t expert) const { return ceil_div(rows(expert), max_tile); }
  int64_t active() const {
    int64_t n = 0;
    for (int64_t e = 0; e < experts; ++e) n += rows(e) > 0 ? 1 : 0;
    return n;
  }
  int64_t all_tiles() const {
    int64_t n = 0;
    for (int64_t e = 0; e < experts; ++e) n += tiles(e);
    return n;
  }
  int64_t nth_active(int64_t n) const {
    int64_t e = 0;
    for (;; ++e)
      if (rows(e) > 0 && n-- == 0) return e;
  }
  // The expert of a tile; `tile` becomes the number among the expert's own.
  int64_t expert_of_tile(int64_t& tile) const {
    int64_t e = 0;
    for (; tile >= tiles(e); ++e) tile -= tiles(e);
    return e;
  }
};

size_t gathered_bytes(int64_t rows, int64_t cols) { return align_up(static_cast<size_t>(rows * cols) * 4, 64); }

}  // namespace

size_t expert_scratch_bytes(int64_t rows, int64_t cols) {
  return gathered_bytes(rows, cols) + align_up(static_cast<size_t>(rows) * most_row_bytes(cols), 64);
}

size_t expert_linear(const ExpertLinearArgs& args, Worker& worker) {
  const PackedMatrix::Impl& first = args.weight->impl();
  const PackedMatrix::Impl& second = args.up != nullptr ? args.up->impl() : first;
  const int64_t cols = first.cols;
  const int64_t outputs = first.rows / args.experts;
  const Groups groups{args.starts, args.experts, first.kernels->max_tile};

  auto* gathered = static_cast<float*>(args.scratch);
  const float* in = args.order != nullptr ? gathered : args.in;
  auto* converted = static_cast<uint8_t*>(args.scratch) + gathered_bytes(args.rows, cols);
  // The product of one expert, its rows already in the kernels' form.
  const auto call_of = [&](int64_t expert) {
    const int64_t row = args.starts[expert];
    Call call(first, second, in + row * cols, cols, groups.rows(expert));
    const size_t quantized_bytes = call.quantize ? quantized_row_bytes(call.blocks, call.halves) : 0;
    call.quantized = converted + static_cast<size_t>(row) * quantized_bytes;
    call.rounded = converted + static_cast<size_t>(args.rows) * quantized_bytes +
                   static_cast<size_t>(row) * (call.bf16 ? bf16_row_bytes(call.blocks) : 0);
    return call;
  };

  worker.share(groups.all_tiles(), [&](int64_t tile) {
    const int64_t expert = groups.expert_of_tile(tile);
    const Call call = call_of(expert);
    if (args.order != nullptr) {
      const int64_t begin = args.starts[expert] + call.tile_start(tile), end = begin + call.tile_rows(tile);
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(gathered + i * cols, args.in + args.order[i] / args.per_token * cols,
                    static_cast<size_t>(cols) * sizeof(float));
    }
    call.convert(tile, 0, call.blocks);
  });

  const int64_t active = groups.active();  // none, on ranks that have none of the chosen
  const auto store =
      first.kernels->store[static_cast<int>(args.up != nullptr ? store_kind(args.activation) : StoreKind::set)];
  const int64_t panels = first.layout.segments[0].panels();
  const int64_t pieces =
      std::clamp<int64_t>(ceil_div(kChunksPerWorker * worker.count(), std::max<int64_t>(active, 1)), 1, panels);
  worker.share(active * pieces, [&](int64_t i) {
    const int64_t expert = groups.nth_active(i / pieces), piece = i % pieces;
    const Call call = call_of(expert);
    const Segment& segment = first.layout.segments[static_cast<size_t>(expert)];
    const Segment& up_segment = second.layout.segments[static_cast<size_t>(expert)];
    const int64_t end = panels * (piece + 1) / pieces;
    for (int64_t panel = panels * piece / pieces; panel < end; panel += kMaxTilePanels) {
      const int count = static_cast<int>(std::min<int64_t>(kMaxTilePanels, end - panel));
      for (int64_t tile = 0; tile < call.tiles; ++tile) {
        alignas(64) float result[kTileFloats];
        alignas(64) float up_result[kTileFloats];
        call.run_tile(first, segment, segment.first_panel + panel, count, tile, result);
        StoreArgs to = {};
        to.tile = result;
        if (args.up != nullptr) {
          call.run_tile(second, up_segment, up_segment.first_panel + panel, count, tile, up_result);
          to.tile = up_result;
          to.gate_tile = result;
        }
        to.rows = call.tile_rows(tile);
        to.cols = static_cast<int>(std::min<int64_t>(count * kPanelRows, outputs - panel * kPanelRows));
        to.out = args.out + (args.starts[expert] + call.tile_start(tile)) * outputs + panel * kPanelRows;
        to.out_stride = outputs;
        store(to);
      }
    }
  });
  const size_t expert_bytes =
      (first.layout.bytes + (args.up != nullptr ? second.layout.bytes : 0)) / static_cast<size_t>(args.experts);
  return static_cast<size_t>(active) * expert_bytes;
}

size_t work_bytes(const ExpertLinearOp& op, const Context& device, int) {
  return expert_scratch_bytes(op.route.pairs(), device.matrix(op.weight).cols());
}

void run(const ExpertLinearOp& op, const Job& job) {
  const Context& device = job.device;
  const ExpertRoute& route = op.route;
  const size_t bytes = expert_linear({.weight = &device.matrix(op.weight),
                                      .up = op.up ? &device.matrix(op.up) : nullptr,
                                      .activation = op.activation,
                                      .experts = route.here(),
                                      .rows = route.pairs(),
                                      .starts = device.words(route.starts) + route.first,
                                      .order = op.up ? device.words(route.order) : nullptr,
                                      .per_token = route.per_token,
                                      .in = device.floats(op.in),
                                      .out = device.floats(op.out),
                                      .scratch = device.work.data()},
                                     job.worker);
  if (job.worker.index() == 0) job.step.times.weight_bytes += bytes;
}

}  // namespace ingot::cpu
