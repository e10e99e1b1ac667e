#include "backend/metal/linear/plan.h"

#include <algorithm>

#include "core/ceil_div.h"

namespace ingot::metal {
namespace {

constexpr int64_t kMostRows = 16;          // few rows at a time
constexpr int64_t kMostStreamedRows = 64;  // unrolled
constexpr int64_t kSharedRows = 9;         // of numbers: from here on x may be shared
constexpr size_t kWaitingBytes = 8;        // of a sum of cuts, while the next one is summed
constexpr int kMostThreads = 1024;         // of a threadgroup

// Any device: not tuned on hardware.
constexpr LinearVariant kStreams{.matrix = 2, .unroll = 1};

bool is_plain(DType format) { return format == DType::f16 || format == DType::bf16; }

// Few rows at a time: what the kernels are specialised for.
int64_t row_bucket(int64_t rows) { return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : kMostStreamedRows; }

// Three parts of x, and the sums of slices for each simdgroup; of blocks two parts, and a corner for each beside.
int64_t shared_bytes(const LinearShape& shape, const LinearVariant& variant, int64_t rows) {
  const int64_t eights = shape.activation ? 2 * variant.matrix : variant.matrix;
  const int64_t sums = variant.split ? 0 : variant.shared * eights * 8 * 4;  // a row
  if (is_block_quantized(shape.format))
    return rows * (2 * variant.unroll * 4 * packed_unit_columns(shape.format) * 2 + sums) + variant.shared * 512;
  return rows * (3 * variant.unroll * 64 + sums);
}

// Slices must be whole turns of the loop; of numbers equally long, of blocks only where they are taken one by one.
bool fits_shared(const LinearShape& shape, const LinearVariant& variant, int64_t rows) {
  const int64_t slice = slice_columns(shape.format, shape.cols);
  if (is_block_quantized(shape.format)) {
    const int64_t turn = variant.unroll * 4 * packed_unit_columns(shape.format);
    return shape.experts == 0 && shape.cuts == 0 && rows <= kMostRows && shape.x_stride % 8 == 0 &&
           turn % kSuperColumns == 0 && shape.cols % turn == 0 && (!variant.split || slice % turn == 0) &&
           variant.shared * 32 <= variant.crowd && shared_bytes(shape, variant, rows) <= shape.threadgroup_bytes;
  }
  return shape.experts == 0 && shape.cuts == 0 && is_plain(shape.format) && rows >= kSharedRows &&
         shape.cols % slice == 0 && slice % (32 * variant.unroll) == 0 &&
         shared_bytes(shape, variant, rows) <= shape.threadgroup_bytes;
}

// Few rows of blocks whose simdgroups share x, near the best on an H200: where a threadgroup of 512 rows of W (of bytes
// 256) leaves no multiprocessor idle, and, of 4 bits and a slice a threadgroup, where columns are many.
std::optional<LinearVariant> shared_blocks(const LinearShape& shape) {
  constexpr int64_t kManyOutputs = 60000, kSplitOutputs = 4096, kSplitColumns = 16384;
  const bool gated = shape.activation.has_value();
  const DTypeInfo& info = dtype_info(shape.format);
  if (!is_block_quantized(shape.format) || !fits_streams(shape) || info.layout.high_bits != 0) return {};
  LinearVariant variant{.matrix = 4, .unroll = 2, .shared = 16, .crowd = 512};
  if (shape.format == DType::q8_0) {
    // One row reads little of x, and more than 8 go by warpgroups.
    variant = {.matrix = 2, .unroll = 4, .shared = 16, .crowd = 512};
    if (shape.rows == 1 || shape.rows > 8 || shape.outputs * (gated ? 2 : 1) < kManyOutputs) return {};
  } else if (info.layout.low_bits != 4 || shape.rows > kMostRows) {
    return {};
  }
  if (shape.outputs * (gated ? 2 : 1) < kManyOutputs) {
    if (gated || shape.outputs <= kSplitOutputs || shape.cols < kSplitColumns) return {};
    variant = {.matrix = 2, .unroll = 2, .shared = 20, .split = true, .crowd = 640};
  }
  if (!fits_shared(shape, variant, row_bucket(shape.rows))) return {};
  return variant;
}

// 9 to 16 rows of numbers: x is as many bytes as the weights of two panels, so that threadgroups take more of those where
// that leaves no multiprocessor idle.
std::optional<LinearVariant> many_of_few(const LinearShape& shape, bool busy) {
  constexpr int64_t kSomeOutputs = 4096, kManyColumns = 16384;
  if (shape.rows < kSharedRows || (!busy && (shape.activation || shape.outputs <= kSomeOutputs))) return {};
  LinearVariant variant{.matrix = 2, .unroll = 2, .sets = 3, .crowd = 768};
  if (busy) variant = {.matrix = 4, .unroll = 2, .shared = 8, .crowd = 512};
  if (!busy && shape.cols >= kManyColumns) variant = {.matrix = 5, .unroll = 4, .shared = 8, .split = true};
  if (variant.shared > 0 && !fits_shared(shape, variant, kMostRows)) return {};
  return variant;
}

// Unrolled on NVIDIA's GPUs: near the best of most shapes on an H200. More panels a simdgroup read the activations less
// often and take more registers, fewer keep more simdgroups busy.
LinearVariant streams_variant(const LinearShape& shape, int64_t rows) {
  constexpr int64_t kBusyOutputs = 16384, kSplitOutputs = 4096, kSplitColumns = 16384;
  if (is_block_quantized(shape.format)) {
    if (const auto shared = shared_blocks(shape)) return *shared;
    const bool bytes = shape.format == DType::q8_0;
    if (rows > kMostRows) return {.matrix = 2, .unroll = bytes ? 4 : 1};
    // Two matrices count once here: panels are halved behind this.
    const bool many = shape.outputs >= kBusyOutputs, some = shape.outputs > kSplitOutputs;
    if (rows > 8) return {.matrix = many ? 4 : some ? 6 : 2, .unroll = bytes ? 4 : 2};
    if (bytes) return {.matrix = some && !many ? 3 : 2, .unroll = 4};
    if (many) return {.matrix = 4, .unroll = 2, .crowd = 512};
    if (some && shape.cols >= kSplitColumns) return {.matrix = 5, .unroll = 2};
    return {.matrix = 2, .unroll = 2, .crowd = 768};
  }
  if (shape.experts > 0) return {.matrix = 2, .unroll = 4, .crowd = 512};
  const bool busy = shape.outputs >= kBusyOutputs;
  if (rows <= kMostRows) {
    if (const auto variant = many_of_few(shape, busy)) return *variant;
    return {.matrix = 2, .unroll = 4};
  }
  if (busy || (shape.outputs >= kSplitOutputs && (rows > 32 || shape.cols >= kSplitColumns)))
    return {.matrix = 4, .unroll = 2, .shared = 8, .split = !busy, .crowd = 512};
  return {.matrix = 2, .unroll = 1};
}

// Turns of both operands, and results behind them or in their place: kernels/linear_tiles.h.
size_t tile_bytes(const LinearVariant& variant, DType type) {
  const int64_t rows = variant.tile_rows, outputs = variant.tile_outputs;
  const int64_t stride = variant.copies ? kLinearCopiedStride : kLinearTileStride;
  const size_t turns =
      static_cast<size_t>(variant.buffers * variant.tile_turn / 32 * (rows + outputs) * stride) * dtype_bytes(type, 1);
  const size_t results = static_cast<size_t>(rows * outputs) * 4;
  return variant.totals ? turns + results : std::max(turns, results);
}
int tile_simdgroups(const LinearVariant& variant) {
  return variant.tile_parts * variant.tile_outputs / variant.tile_width;
}

// What a simdgroup has of the rows, and a thread of both operands. 16 rows meet in an instruction of NVIDIA's GPUs.
bool fits_tiles(const LinearShape& shape, const LinearVariant& variant, int family) {
  const int rows = variant.tile_rows, high = rows / 8 / variant.tile_parts, threads = 32 * tile_simdgroups(variant);
  const int sides = variant.tile_parts * 32 / variant.tile_width, runs = variant.tile_turn / 8;
  if (shape.experts > 0 && shape.item_rows % rows != 0) return false;
  if (high < 1 || high > 8 || rows * runs < threads || rows * runs > 8 * threads) return false;
  if (sides > 4 || runs < sides || runs > 8 * sides) return false;
  if (family == kNvidiaFamily && tile_type(shape) != DType::f32 && high % 2 != 0) return false;
  return !variant.copies || (variant.buffers > 1 && fits_copies(shape));
}

// NVIDIA's: two threadgroups a multiprocessor, each with as many sums as there are registers.
LinearVariant large_tiles(const LinearShape& shape) {
  LinearVariant large{.tile_rows = 128, .tile_outputs = 128, .tile_turn = 32, .buffers = 2};
  if (!fits_copies(shape)) return large;
  large.copies = true;
  large.buffers = 3;
  if (is_block_quantized(shape.format)) return large;
  large.tile_width = 64;
  large.totals = true;
  return large;
}

LinearColumns columns_of(DType format, const LinearCut& cut) {
  const int64_t slice = slice_columns(format, cut.cols);
  return {.planes = packed_planes(format, cut.cols),
          .offset = static_cast<uint32_t>(cut.offset / 16),
          .first = static_cast<uint32_t>(cut.first_col),
          .cols = static_cast<uint32_t>(cut.cols),
          .slices = static_cast<uint32_t>(ceil_div(cut.cols, slice)),
          .slice_columns = static_cast<uint32_t>(slice)};
}

uint32_t number_of(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::silu: return 1;
    case ActivationKind::gelu_tanh: return 2;
    case ActivationKind::gelu: return 3;
  }
  return 1;
}

}  // namespace

// Codes times scales fit a half as well as any activation does; in bf16 they would lose bits.
DType tile_type(const LinearShape& shape) {
  auto fits = [&](DType format) -> DType {
    if (format == DType::f32 || shape.in == DType::f32) return DType::f32;
    if (shape.in == DType::bf16) return format == DType::bf16 ? DType::bf16 : DType::f32;
    return format == DType::bf16 ? DType::f32 : DType::f16;
  };
  const DType first = fits(shape.format);
  return shape.activation && fits(shape.format_up) != first ? DType::f32 : first;
}

int64_t rows_together(const LinearShape& shape) { return shape.experts > 0 ? shape.item_rows : shape.rows; }

uint32_t activation_number(const LinearShape& shape) {
  if (shape.activation) return number_of(*shape.activation);
  return shape.plain_activation ? 3 + number_of(*shape.plain_activation) : 0;
}

LinearOut linear_out(const LinearShape& shape) {
  return {.stride = static_cast<uint32_t>(shape.out_stride),
          .type = static_cast<uint32_t>(shape.out),
          .accumulate = shape.accumulate,
          .bias = shape.bias,
          .bias_up = shape.bias_up};
}

// Blocks of scales stay whole, and so do turns of tiles. Half as many slices of rows below 8192 columns were tried on
// an H200: decoding lost 4 %, prefill by the library won 13 %.
int64_t slice_columns(DType format, int64_t cols) {
  const int64_t part = is_block_quantized(format) ? kSuperColumns : kLinearTurn;
  return ceil_div(ceil_div(cols, part), int64_t{kLinearMostSlices}) * part;
}

bool fits_streams(const LinearShape& shape) {
  const auto fits = [&shape](int64_t columns) {
    return std::all_of(shape.cut.begin(), shape.cut.begin() + shape.cuts,
                       [columns](const LinearCut& cut) { return cut.cols % columns == 0; }) &&
           shape.cols % columns == 0;
  };
  if (shape.activation && shape.format_up != shape.format) return false;
  if (shape.experts > 0 && shape.outputs % kPanelRows != 0) return false;
  if (is_plain(shape.format)) return shape.format == shape.in && fits(32);
  return is_block_quantized(shape.format) && shape.in == DType::f16 && fits(kSuperColumns);
}

bool fits_copies(const LinearShape& shape) {
  const int64_t stride = shape.x_stride > 0 ? shape.x_stride : shape.cols;
  if (tile_type(shape) != shape.in || shape.in == DType::f32 || shape.cuts > 0 || stride % 8 != 0) return false;
  if (shape.activation && shape.format_up != shape.format) return false;
  return shape.cols % (is_block_quantized(shape.format) ? 2 * kLinearTurn : kLinearTurn) == 0;
}

bool shares_blocks(const LinearShape& shape) { return shared_blocks(shape).has_value(); }

int64_t most_few_rows(const LinearShape& shape, int family) {
  if (shape.experts > 0) return kMostRows;
  if (family != kNvidiaFamily || !fits_streams(shape)) return kMostRows;
  return is_plain(shape.format) ? 2 * kMostStreamedRows : kMostStreamedRows;
}

LinearVariant linear_variant(const LinearShape& shape, int family) {
  const bool nvidia = family == kNvidiaFamily, gated = shape.activation.has_value();
  if (rows_together(shape) > most_few_rows(shape, family)) {
    const int64_t rows = rows_together(shape);
    const DType type = tile_type(shape);
    if (tried_variant && tried_variant->tile_rows > 0 && fits(shape, *tried_variant, family)) return *tried_variant;
    const LinearVariant large = large_tiles(shape);
    if (nvidia && rows > 64 && tile_bytes(large, type) <= static_cast<size_t>(shape.threadgroup_bytes)) return large;
    // 32 by 32 sums and as many totals are more than a thread of Apple's GPUs has registers for. With cuts 16 by 32 of
    // both are too: totals wait in threadgroup memory, and a turn is brought when the one before was multiplied.
    if (!nvidia && shape.cuts > 0 && type != DType::f32)
      return rows > 32 ? LinearVariant{.tile_rows = 64, .tile_parts = 4, .tile_turn = 32, .totals = true}
                       : LinearVariant{.tile_rows = 32, .tile_parts = 2, .tile_turn = 32, .totals = true};
    if (rows <= 32 || type == DType::f32) return {.tile_rows = 32, .tile_parts = 2, .tile_turn = 32, .buffers = 2};
    return {.tile_rows = 64, .tile_parts = nvidia ? 2 : 4, .tile_turn = 32, .buffers = 2};
  }
  const int64_t rows = std::min(rows_together(shape), kMostStreamedRows);
  const bool tried =
      tried_variant && tried_variant->tile_rows == 0 && (tried_variant->unroll > 0) == fits_streams(shape);
  LinearVariant variant{.matrix = rows <= 8 ? 2 : 1};
  if (!nvidia && is_plain(shape.format) && fits_streams(shape)) variant = kStreams;
  if (nvidia && fits_streams(shape)) variant = streams_variant(shape, rows);
  if (tried) variant = *tried_variant;
  if (variant.unroll == 0) return variant;
  if (gated && !tried) variant.matrix = std::max(variant.matrix / 2, 1);  // of each of two matrices
  if (gated) variant.split = false;                                       // both matrices' sums are needed at once
  const int64_t bucket = row_bucket(rows);
  while (variant.shared > 0 && variant.unroll > 1 && !fits_shared(shape, variant, bucket)) variant.unroll /= 2;
  if (variant.shared > 0 && !fits_shared(shape, variant, bucket))
    variant = {.matrix = std::min(variant.matrix, gated ? 1 : 2), .unroll = 1};
  return variant;
}

bool fits(const LinearShape& shape, const LinearVariant& variant, int family) {
  if (variant.tile_rows > 0) {
    if (!fits_tiles(shape, variant, family)) return false;
  } else {
    const int64_t rows = shape.experts > 0 ? shape.item_rows : row_bucket(std::min(shape.rows, kMostStreamedRows));
    if (rows > kMostStreamedRows) return false;
    if (variant.unroll == 0 && (rows > kMostRows || variant.crowd > 256)) return false;
    if (variant.unroll > 0 && !fits_streams(shape)) return false;
    if (variant.shared > 0 ? !fits_shared(shape, variant, rows) : variant.split) return false;
    if (variant.split && shape.activation) return false;  // both matrices' sums are needed at once
    if (variant.sets > 0 && (variant.unroll == 0 || variant.shared > 0 || shape.experts > 0 || shape.cuts > 0))
      return false;
  }
  const LinearPlan plan = plan_linear(shape, variant);
  if (variant.sets > 0 && plan.threads > static_cast<uint32_t>(variant.crowd)) return false;
  return plan.threads <= kMostThreads && plan.threadgroup_bytes <= static_cast<size_t>(shape.threadgroup_bytes);
}

LinearPlan plan_linear(const LinearShape& shape, const LinearVariant& variant) {
  LinearPlan plan;
  const DType type = tile_type(shape);
  const bool gated = shape.activation.has_value(), tiles = variant.tile_rows > 0;
  const DType format_up = gated ? shape.format_up : shape.format;
  const int64_t slice_up = slice_columns(format_up, shape.cols);

  LinearParams& p = plan.params;
  p.columns = columns_of(shape.format, {.cols = shape.cols});
  p.columns.slices = std::max(p.columns.slices, static_cast<uint32_t>(ceil_div(shape.cols, slice_up)));
  if (shape.cuts > 0) {
    p.columns.slices = 0;
    for (size_t i = 0; i < static_cast<size_t>(shape.cuts); ++i) {
      plan.cuts[i] = columns_of(shape.format, shape.cut[i]);
      p.columns.slices = std::max(p.columns.slices, plan.cuts[i].slices);
    }
  }
  p.cuts = static_cast<uint32_t>(shape.cuts);
  p.left = static_cast<uint32_t>(shape.left);
  const int64_t slices = p.columns.slices;
  if (gated) p.planes_up = packed_planes(format_up, shape.cols);
  p.out = linear_out(shape);
  p.rows = static_cast<uint32_t>(shape.rows);
  p.x_stride = static_cast<uint32_t>(shape.x_stride > 0 ? shape.x_stride : shape.cols);
  p.outputs = static_cast<uint32_t>(shape.outputs);
  p.slice_columns_up = static_cast<uint32_t>(slice_up);
  p.per_token = static_cast<uint32_t>(shape.per_token);
  p.first_expert = static_cast<uint32_t>(shape.first_expert);

  const int64_t bucket = tiles               ? variant.tile_rows
                         : shape.experts > 0 ? shape.item_rows
                                             : row_bucket(std::min(shape.rows, kMostStreamedRows));
  plan.bucket = static_cast<uint32_t>(bucket);
  if (tiles) {
    p.item_tiles = static_cast<uint32_t>(shape.experts > 0 ? shape.item_rows / bucket : 1);
    p.row_tiles = shape.experts > 0 ? static_cast<uint32_t>(shape.items) * p.item_tiles
                                    : static_cast<uint32_t>(ceil_div(shape.rows, bucket));
    plan.groups =
        p.row_tiles * static_cast<uint32_t>(ceil_div(shape.outputs, int64_t{variant.tile_outputs / (gated ? 2 : 1)}));
    plan.threads = static_cast<uint32_t>(32 * tile_simdgroups(variant));
    plan.threadgroup_bytes = tile_bytes(variant, type);
    if (shape.cuts > 0) plan.partial_bytes = static_cast<size_t>(shape.rows * shape.outputs) * kWaitingBytes;
  } else {
    // A simdgroup a slice; where slices are few, more sets of them.
    const int64_t own_sets = variant.sets > 0 ? variant.sets : std::max<int64_t>(4 / slices, 1);
    const int64_t sets = variant.shared > 0 ? variant.shared : own_sets;
    const int64_t simdgroups = variant.shared > 0 ? variant.shared : sets * slices;
    const int64_t row_groups = shape.experts > 0 ? shape.items : ceil_div(shape.rows, bucket);
    const int64_t eights = gated ? 2 * variant.matrix : variant.matrix;
    plan.threads = static_cast<uint32_t>(32 * simdgroups);
    p.output_groups = static_cast<uint32_t>(ceil_div(shape.outputs, 8 * variant.matrix * sets));
    plan.groups = p.output_groups * static_cast<uint32_t>(row_groups * (variant.split ? slices : 1));
    if (variant.split) {
      const int64_t padded = ceil_div(shape.outputs, kPanelRows) * kPanelRows;
      plan.partial_bytes = static_cast<size_t>(row_groups * slices * padded * bucket) * 4;
      plan.add_groups = static_cast<uint32_t>(ceil_div(shape.outputs, int64_t{4 * kLinearAddThreads}));
      plan.add_row_groups = static_cast<uint32_t>(shape.rows);
    }
    // Sums of the slices, and a corner for each simdgroup: behind them, or where they follow.
    const int64_t round = eights <= 6 ? std::min<int64_t>(bucket / 8, 2) : 1;
    const int64_t sums = simdgroups * 8 * round * (eights * 8 + kLinearResultGap) * 4;
    plan.threadgroup_bytes =
        static_cast<size_t>(variant.shared > 0   ? shared_bytes(shape, variant, bucket)
                            : variant.unroll > 0 ? sums + simdgroups * 256 * 2
                                                 : std::max(sums, simdgroups * (bucket / 8 + variant.matrix) * 1024));
    if (shape.cuts > 0)
      plan.threadgroup_bytes += static_cast<size_t>(sets * variant.matrix * 8 * bucket) * kWaitingBytes;
  }

  const bool half = type == DType::f16, bfloat = type == DType::bf16;
  if (tiles)
    plan.kernel = half ? "linear_many_half" : bfloat ? "linear_many_bfloat" : "linear_many_float";
  else if (variant.crowd > 640)
    plan.kernel = half ? "linear_few_half_768" : "linear_few_bfloat_768";
  else if (variant.crowd > 512)
    plan.kernel = half ? "linear_few_half_640" : "linear_few_bfloat_640";
  else if (variant.crowd > 256)
    plan.kernel = half ? "linear_few_half_512" : "linear_few_bfloat_512";
  else
    plan.kernel = half ? "linear_few_half" : bfloat ? "linear_few_bfloat" : "linear_few_float";
  plan.constants = {
      Constant::u(kLinearFormat, packed_format(shape.format)),
      Constant::u(kLinearFormatUp, packed_format(format_up)),
      Constant::u(kLinearRows, bucket),
      Constant::u(kLinearShared, tiles ? 0 : variant.shared),
      // Where loops are not unrolled anyway the number need not be known to the compiler.
      Constant::u(kLinearSlices, tiles || variant.unroll == 0 ? 0 : slices),
      Constant::u(kLinearUnroll, tiles ? 0 : variant.unroll),
      Constant::u(kLinearMatrix, tiles ? 0 : variant.matrix),
      Constant::u(kLinearTileOutputs, tiles ? variant.tile_outputs : 0),
      Constant::u(kLinearTileParts, tiles ? variant.tile_parts : 0),
      Constant::u(kLinearTileWidth, tiles ? variant.tile_width : 0),
      Constant::u(kLinearTileTurn, tiles ? variant.tile_turn : 0),
      Constant::u(kLinearBuffers, tiles ? variant.buffers : 0),
      Constant::u(kLinearActivation, activation_number(shape)),
      Constant::u(kLinearX, static_cast<int64_t>(shape.in)),
      Constant::b(kLinearExperts, shape.experts > 0),
      Constant::b(kLinearSplit, !tiles && variant.split),
      Constant::b(kLinearCut, shape.cuts > 0),
      Constant::b(kLinearCopies, tiles && variant.copies),
      Constant::b(kLinearTotals, tiles && variant.totals),
  };
  return plan;
}

}  // namespace ingot::metal
