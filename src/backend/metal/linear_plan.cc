#include "backend/metal/linear_plan.h"

#include <algorithm>

#include "backend/metal/family.h"

namespace ingot::metal {
namespace {

constexpr int64_t kMostRows = 16;  // of the first way at a time
constexpr int64_t kMostMatrixRows = 64;
constexpr int64_t kSlices = 8;        // of the columns, as in kernels/linear.metal
constexpr int64_t kTileOutputs = 64;  // as in kernels/linear.metal
constexpr int64_t kTileStride = 64 + 8;
constexpr uint32_t kTileThreads = 128;

constexpr int64_t div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The one table of variants: the first line that fits is taken. More outputs a lane group read the activations less
// often and take more registers (outputs * (rows + 12) or so, of about 128 on an Apple GPU); fewer keep more lane
// groups busy. Those of Apple's families are chosen by these counts and not tuned on hardware; those of NVIDIA's are
// tuned on an H200 (docs/benchmarks.md).
struct TableLine {
  int min_family, max_family;  // Apple GPU families, or kNvidiaFamily
  bool matrix;                 // 16-bit weights and activations of one type, columns a multiple of 32
  int64_t max_rows;            // at a time
  int64_t min_outputs;         // of the product
  LinearVariant variant;
};
constexpr int kNvidia = kNvidiaFamily;
constexpr TableLine kTable[] = {
    {kNvidia, kNvidia, true, 8, 5632, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, true, 8, 0, {.unroll = 2, .simdgroups = 8, .matrix = 1}},
    {kNvidia, kNvidia, true, 16, 16384, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, true, 16, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, true, 64, 0, {.unroll = 1, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, false, 8, 512, {.outputs = 2, .unroll = 1, .simdgroups = 8}},
    {0, kNvidia, false, 8, 512, {.outputs = 4, .unroll = 1, .simdgroups = 4}},
    {0, kNvidia, false, 16, 512, {.outputs = 2, .unroll = 1, .simdgroups = 4}},
    {0, kNvidia, false, 16, 0, {.outputs = 1, .unroll = 1, .simdgroups = 4}},
};

bool fits_matrix(const LinearShape& shape) {
  if (shape.experts > 0) return false;
  if (shape.format != DType::f16 && shape.format != DType::bf16) return false;
  if (shape.activation && shape.format_up != shape.format) return false;
  return shape.format == shape.in && shape.cols % 32 == 0;
}

// Rows at a time of the first way: what the kernels are specialised for.
int64_t row_bucket(int64_t rows, bool matrix) {
  if (matrix) return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : kMostMatrixRows;
  for (int64_t bucket : {1, 2, 4, 8})
    if (rows <= bucket) return bucket;
  return kMostRows;
}

// Operands of the matrix unit: the narrowest type that holds both sides. Codes times scales fit a half as well as any
// activation does; in bf16 they would lose bits.
DType tile_type(const LinearShape& shape) {
  auto fits = [&](DType format) -> DType {
    if (format == DType::f32 || shape.in == DType::f32) return DType::f32;
    if (shape.in == DType::bf16) return format == DType::bf16 ? DType::bf16 : DType::f32;
    return format == DType::bf16 ? DType::f32 : DType::f16;
  };
  const DType first = fits(shape.format);
  return shape.activation && fits(shape.format_up) != first ? DType::f32 : first;
}

uint32_t number_of(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::silu: return 1;
    case ActivationKind::gelu_tanh: return 2;
    case ActivationKind::gelu: return 3;
  }
  return 1;
}

uint32_t activation_number(const LinearShape& shape) {
  if (shape.activation) return number_of(*shape.activation);
  return shape.plain_activation ? 3 + number_of(*shape.plain_activation) : 0;
}

}  // namespace

int linear_lanes(DType format, int64_t cols) {
  const int64_t units = div_up(cols, packed_unit_columns(format));
  return units >= 128 ? 32 : units >= 64 ? 16 : units >= 16 ? 8 : 4;
}

LinearVariant linear_variant(const LinearShape& shape, int family) {
  const bool mixed = shape.decode_rows >= 0 && shape.decode_rows < shape.rows;
  const bool matrix = fits_matrix(shape);
  LinearVariant variant;
  for (const TableLine& line : kTable) {
    if (family < line.min_family || family > line.max_family || (line.matrix && !matrix)) continue;
    const int64_t most = line.matrix ? kMostMatrixRows : kMostRows;
    const int64_t rows = shape.experts > 0 ? shape.item_rows : mixed ? kMostRows : std::min(shape.rows, most);
    if (rows > line.max_rows || shape.outputs < line.min_outputs) continue;
    variant = line.variant;
    break;
  }
  if (tried_variant && (tried_variant->matrix > 0) == matrix && !mixed) {
    variant = *tried_variant;
    if (!matrix) variant.lanes = linear_lanes(shape.format, shape.cols);
    return variant;
  }
  if (variant.matrix > 0) {
    if (shape.activation) variant.matrix = std::max(variant.matrix / 2, 1);  // of each of two matrices
    return variant;
  }
  variant.lanes = linear_lanes(shape.format, shape.cols);
  if (shape.activation) variant.outputs = std::max(variant.outputs / 2, 1);  // of each of two matrices
  return variant;
}

LinearPlan plan_linear(const LinearShape& shape, const LinearVariant& variant) {
  LinearPlan plan;
  int64_t few = shape.decode_rows;
  if (few < 0) few = shape.rows <= kMostRows ? shape.rows : 0;
  if (shape.experts > 0) few = shape.rows;
  const int64_t tiled = shape.rows - few;
  const DType type = tile_type(shape);
  const bool gated = shape.activation.has_value();

  // Beside tiles the first way costs little, so there it has one size.
  const int64_t bucket = shape.experts > 0 ? shape.item_rows
                         : few == 0        ? 0
                         : tiled > 0       ? kMostRows
                                           : row_bucket(few, variant.matrix > 0);
  const int64_t most_tile_rows = type == DType::f32 ? 32 : 64;
  const int64_t tile_rows = tiled == 0 ? 0 : tiled <= 32 ? 32 : most_tile_rows;

  LinearParams& p = plan.params;
  p.planes = packed_planes(shape.format, shape.cols);
  if (gated) p.planes_up = packed_planes(shape.format_up, shape.cols);
  p.rows = static_cast<uint32_t>(shape.rows);
  p.cols = static_cast<uint32_t>(shape.cols);
  p.outputs = static_cast<uint32_t>(shape.outputs);
  p.out_stride = static_cast<uint32_t>(shape.out_stride);
  p.small_rows = static_cast<uint32_t>(few);

  plan.threads = tiled > 0 ? kTileThreads : static_cast<uint32_t>(32 * variant.simdgroups);
  if (few > 0) {
    const int64_t per_group =
        variant.matrix > 0 ? 8 * variant.matrix : int64_t{plan.threads} / variant.lanes * variant.outputs;
    p.output_groups = static_cast<uint32_t>(div_up(shape.outputs, per_group));
    p.small_groups = p.output_groups * static_cast<uint32_t>(shape.experts > 0 ? shape.items : div_up(few, bucket));
    p.per_token = static_cast<uint32_t>(shape.per_token);
  }
  plan.groups = p.small_groups;
  plan.threadgroup_bytes = 16;
  if (few > 0 && variant.matrix > 0) {
    // Sums of the slices, and a corner for each simdgroup.
    const int64_t eights = gated ? 2 * variant.matrix : variant.matrix;
    const int64_t round = eights <= 4 ? std::min<int64_t>(bucket / 8, 2) : 1;
    plan.threadgroup_bytes = static_cast<size_t>(kSlices * eights * 8 * 8 * round * 4 + plan.threads / 32 * 256 * 2);
  }
  if (tiled > 0) {
    p.row_tiles = static_cast<uint32_t>(div_up(tiled, tile_rows));
    plan.groups += p.row_tiles * static_cast<uint32_t>(div_up(shape.outputs, gated ? kTileOutputs / 2 : kTileOutputs));
    plan.threadgroup_bytes = std::max(
        plan.threadgroup_bytes, static_cast<size_t>((tile_rows + kTileOutputs) * kTileStride) * dtype_bytes(type, 1));
  }

  plan.kernel = (tiled == 0 && variant.matrix == 0) || type == DType::f16 ? "linear_half"
                : type == DType::bf16                                     ? "linear_bfloat"
                                                                          : "linear_float";
  plan.constants = {
      static_cast<uint32_t>(shape.format),
      static_cast<uint32_t>(gated ? shape.format_up : shape.format),
      static_cast<uint32_t>(bucket),
      few > 0 && variant.matrix == 0 ? static_cast<uint32_t>(variant.outputs) : 1,
      few > 0 && variant.matrix == 0 ? static_cast<uint32_t>(variant.lanes) : 32,
      few > 0 ? static_cast<uint32_t>(variant.unroll) : 1,
      static_cast<uint32_t>(tile_rows),
      activation_number(shape),
      static_cast<uint32_t>(shape.in),
      static_cast<uint32_t>(shape.out),
      few > 0 ? static_cast<uint32_t>(variant.matrix) : 0,
      shape.accumulate,
      shape.bias,
      shape.bias_up,
      shape.cols % 8 == 0,
      shape.experts > 0,
  };
  return plan;
}

}  // namespace ingot::metal
