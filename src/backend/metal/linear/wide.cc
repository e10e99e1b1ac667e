#include "backend/metal/linear/wide.h"

#include <algorithm>

#include "backend/metal/context.h"
#include "core/ceil_div.h"

namespace ingot::metal {
namespace {

constexpr int64_t kMostTileRows = 128;
// Blocks of more rows go by warpgroups; of more than the second number where that keeps all multiprocessors busy, and
// simdgroups do not share x.
constexpr int64_t kFewBlockRows = 16, kFewBusyRows = 8;
constexpr int64_t kTurnBytes = kLinearTurn * 2;                       // of a row of x
constexpr size_t kRingBytes = 216 << 10, kHalfRingBytes = 110 << 10;  // for the rings of one threadgroup, of two
constexpr uint32_t kMostStages = 12, kLeastHalfStages = 4;

// Eight rows of a stage of weights: 64 columns of numbers, 256 of blocks.
size_t stage_bytes(DType format) {
  if (!is_block_quantized(format)) return kPanelRows * kTurnBytes;
  return packed_planes(format, kSuperColumns).panel_bytes;
}

int64_t output_tiles(const LinearShape& shape) {
  return ceil_div(shape.outputs, int64_t{kWideOutputs} / (shape.activation ? 2 : 1));
}

}  // namespace

bool Wide::takes(const LinearShape& shape) const {
  if (cores_ == 0 || shape.experts > 0 || shape.cuts > 0 || !fits_streams(shape)) return false;
  if (shape.threadgroup_bytes < static_cast<int64_t>(kRingBytes) + 1024) return false;
  if (is_block_quantized(shape.format))
    return tried_wide || shape.rows > kFewBlockRows ||
           (shape.rows > kFewBusyRows && !tried_variant && busy(shape) && !shares_blocks(shape));
  return shape.cols % kLinearTurn == 0 && shape.rows > 64;
}

bool Wide::busy(const LinearShape& shape) const { return 2 * output_tiles(shape) >= 3 * int64_t{cores_}; }

WideVariant Wide::variant(const LinearShape& shape) const {
  if (tried_wide) return *tried_wide;
  WideVariant variant;
  variant.tile_rows = shape.rows <= 16 ? 16 : shape.rows <= 32 ? 32 : shape.rows <= 64 ? 64 : kMostTileRows;
  // Where tiles are too few for all multiprocessors, their slices are not; of two matrices both sums are needed at
  // once.
  const int64_t tiles = output_tiles(shape) * ceil_div(shape.rows, int64_t{variant.tile_rows});
  variant.split = !shape.activation && tiles < int64_t{cores_};
  if (variant.tile_rows > 32 || !busy(shape)) return variant;
  WideVariant twice = variant;
  twice.twice = true;
  return plan(shape, twice).product.params.wide_stages >= kLeastHalfStages ? twice : variant;
}

WidePlan Wide::plan(const LinearShape& shape, const WideVariant& variant) const {
  WidePlan wide;
  LinearPlan& plan = wide.product;
  LinearVariant like;  // for parameters and constants
  like.tile_rows = variant.tile_rows;
  plan = plan_linear(shape, like);
  LinearParams& p = plan.params;
  const bool half = tile_type(shape) == DType::f16;
  const int64_t rows = variant.tile_rows, slices = p.columns.slices;
  const size_t stage = stage_bytes(shape.format) * (kWideOutputs / kPanelRows);
  const auto turn = static_cast<size_t>(rows * kTurnBytes);
  p.row_tiles = static_cast<uint32_t>(ceil_div(shape.rows, rows));
  p.output_groups = static_cast<uint32_t>(output_tiles(shape));
  const size_t ring = variant.twice ? kHalfRingBytes : kRingBytes;
  p.wide_turns = rows == kMostTileRows ? 6 : rows == 64 ? 8 : kMostStages;
  p.wide_stages = static_cast<uint32_t>(std::min<size_t>((ring - p.wide_turns * turn) / stage, kMostStages));
  if (variant.twice)
    plan.kernel = half ? "linear_wide_twice_half" : "linear_wide_twice_bfloat";
  else
    plan.kernel = half ? "linear_wide_half" : "linear_wide_bfloat";
  plan.threads = kWideThreads;
  plan.groups = std::min(p.row_tiles * p.output_groups * static_cast<uint32_t>(variant.split ? slices : 1),
                         variant.twice ? 2 * cores_ : cores_);
  plan.threadgroup_bytes = p.wide_stages * (stage + 16) + p.wide_turns * (turn + 16);
  for (Constant& constant : plan.constants) {
    if (constant.index == kLinearSplit) constant = Constant::b(kLinearSplit, variant.split);
    if (constant.index == kLinearSlices) constant = Constant::u(kLinearSlices, variant.split ? slices : 0);
  }
  if (variant.split) {
    const int64_t padded = ceil_div(shape.outputs, kPanelRows) * kPanelRows;
    plan.partial_bytes = static_cast<size_t>(p.row_tiles * slices * padded * rows) * 4;
    plan.add_groups = static_cast<uint32_t>(ceil_div(shape.outputs, int64_t{4 * kLinearAddThreads}));
    plan.add_row_groups = static_cast<uint32_t>(shape.rows);
  }
  wide.inputs = half ? "linear_wide_inputs_half" : "linear_wide_inputs_bfloat";
  wide.input_turns = static_cast<uint32_t>(shape.cols / kLinearTurn);
  wide.input_tiles = p.row_tiles;
  wide.input_threads = static_cast<uint32_t>(2 * rows);
  wide.input_bytes = static_cast<size_t>(p.row_tiles * rows * shape.cols) * 2;
  return wide;
}

size_t Wide::work_bytes(int64_t rows, int64_t cols) const {
  if (cores_ == 0) return 0;
  return static_cast<size_t>(ceil_div(rows, kMostTileRows) * kMostTileRows * cols) * 2 +
         static_cast<size_t>(cores_ * kMostTileRows * kWideOutputs * kLinearMostSlices) * 4;
}

// More rows may need less: beyond some they are not split. A rehearsal of the most rows must reserve what fewer need.
size_t Wide::most_partial_bytes(const LinearShape& shape) const {
  LinearShape fewer = shape;
  fewer.rows = std::min(shape.rows, (int64_t{cores_} - 1) / output_tiles(shape) * kMostTileRows);
  if (fewer.rows <= 0 || !takes(fewer)) return 0;
  return plan(fewer, variant(fewer)).product.partial_bytes;
}

void Wide::encode(Context& context, const LinearShape& shape, const GemmOperands& operands) {
  const WidePlan wide = plan(shape, variant(shape));
  const LinearPlan& plan = wide.product;
  Encoder& encoder = context.encoder;
  const BufferView tiles = context.memory.reserve(inputs_, wide.input_bytes, "work inputs");
  encoder.use(wide.inputs, plan.constants);
  encoder.read(0, operands.in);
  encoder.write(1, tiles);
  encoder.value(2, plan.params);
  encoder.dispatch({wide.input_turns, wide.input_tiles, 1}, {wide.input_threads, 1, 1});

  if (encoder.rehearsing()) context.memory.reserve(context.partials, most_partial_bytes(shape), "work sums");
  GemmOperands laid_out = operands;
  laid_out.in = tiles;
  encode_plan(context, shape, plan, laid_out, {});
}

}  // namespace ingot::metal
