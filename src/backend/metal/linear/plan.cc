#include "backend/metal/linear/plan.h"

#include <algorithm>

#include "core/ceil_div.h"

namespace ingot::metal {
namespace {

constexpr int64_t kMostRows = 16;  // few rows in registers, at a time
constexpr int64_t kMostMatrixRows = 64;
constexpr int64_t kManyOutputs = 32768;  // keep a device busy without slices
constexpr int64_t kBusyOutputs = 16384;  // with few

// The one table of variants: the first line that fits is taken. More outputs a lane group read the activations less
// often and take more registers (outputs * (rows + 12) or so, of about 128 on an Apple GPU); fewer keep more lane
// groups busy. Those of Apple's families are chosen by these counts and not tuned on hardware; those of NVIDIA's are
// tuned on an H200 (docs/benchmarks.md): where outputs are few, threadgroups must come out even on its 132
// multiprocessors, so 5120 outputs are 128 times 40, not 320 times 16.
// In registers; on the matrix unit: 16-bit weights, the same of experts, of two matrices of experts, q8_0, q4_0 and
// q4_k, other quantized ones.
enum class Way { few, matrix, experts, gated_experts, bytes, nibbles, blocks };
struct TableLine {
  int min_family, max_family;  // Apple GPU families, or kNvidiaFamily
  Way way;
  int64_t max_rows;     // at a time
  int64_t min_outputs;  // of the product
  int64_t min_cols;
  LinearVariant variant;
};
constexpr int kNvidia = kNvidiaFamily;
// Shared: as many threadgroups as multiprocessors hold at once, of as many outputs as registers hold.
constexpr LinearVariant shared(int matrix, int unroll, int crowd) {
  return {.unroll = unroll, .simdgroups = 8, .matrix = matrix, .shared = true, .crowd = crowd};
}
constexpr LinearVariant split(int matrix, int unroll, int crowd) {
  LinearVariant variant = shared(matrix, unroll, crowd);
  variant.split = true;
  return variant;
}
constexpr TableLine kTable[] = {
    {kNvidia, kNvidia, Way::matrix, 8, 5632, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 8, 4608, 8192, {.unroll = 4, .simdgroups = 8, .matrix = 5}},
    {kNvidia, kNvidia, Way::matrix, 8, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 16, 16384, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 16, 4096, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 16, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 32, 16384, 0, shared(4, 2, 512)},
    {kNvidia, kNvidia, Way::matrix, 32, 5121, 16384, split(3, 2, 512)},
    {kNvidia, kNvidia, Way::matrix, 32, 4096, 16384, split(5, 4, 256)},
    {kNvidia, kNvidia, Way::matrix, 32, 0, 0, {.unroll = 1, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::matrix, 64, 16384, 0, shared(4, 2, 512)},
    {kNvidia, kNvidia, Way::matrix, 64, 6145, 0, split(4, 2, 512)},
    {kNvidia, kNvidia, Way::matrix, 64, 5121, 0, split(3, 2, 512)},
    {kNvidia, kNvidia, Way::matrix, 64, 4097, 0, split(5, 4, 256)},
    {kNvidia, kNvidia, Way::matrix, 64, 4096, 0, split(4, 4, 256)},
    {kNvidia, kNvidia, Way::matrix, 64, 0, 0, {.unroll = 1, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::experts, 16, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2, .crowd = 512}},
    {kNvidia, kNvidia, Way::gated_experts, 8, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2, .crowd = 768}},
    {kNvidia, kNvidia, Way::gated_experts, 16, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2, .crowd = 512}},
    {kNvidia, kNvidia, Way::bytes, 8, kBusyOutputs, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::bytes, 8, 4225, 0, {.unroll = 4, .simdgroups = 8, .matrix = 3}},
    {kNvidia, kNvidia, Way::bytes, 16, kBusyOutputs, 0, {.unroll = 4, .simdgroups = 8, .matrix = 4}},
    {kNvidia, kNvidia, Way::bytes, 16, 4225, 16384, {.unroll = 4, .simdgroups = 8, .matrix = 5}},
    {kNvidia, kNvidia, Way::bytes, 16, 4225, 0, {.unroll = 4, .simdgroups = 8, .matrix = 6}},
    {kNvidia, kNvidia, Way::bytes, 16, 0, 16384, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::bytes, 16, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 1}},
    {kNvidia, kNvidia, Way::bytes, 64, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::nibbles, 8, kManyOutputs, 0, {.unroll = 2, .simdgroups = 8, .matrix = 4, .crowd = 512}},
    {kNvidia, kNvidia, Way::nibbles, 1, 0, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2, .crowd = 768}},
    {kNvidia, kNvidia, Way::nibbles, 8, 4225, 16384, {.unroll = 2, .simdgroups = 8, .matrix = 5}},
    {kNvidia, kNvidia, Way::nibbles, 8, 0, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2, .crowd = 768}},
    {kNvidia, kNvidia, Way::nibbles, 16, kManyOutputs, 0, {.unroll = 2, .simdgroups = 8, .matrix = 4}},
    {kNvidia, kNvidia, Way::nibbles, 16, 4225, 0, {.unroll = 2, .simdgroups = 8, .matrix = 6}},
    {kNvidia, kNvidia, Way::nibbles, 16, 0, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::nibbles, 64, 0, 0, {.unroll = 1, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::blocks, 8, kManyOutputs, 0, {.unroll = 2, .simdgroups = 8, .matrix = 4, .crowd = 512}},
    {kNvidia, kNvidia, Way::blocks, 8, 0, 16384, {.unroll = 2, .simdgroups = 8, .matrix = 2, .crowd = 768}},
    {kNvidia, kNvidia, Way::blocks, 8, 0, 0, {.unroll = 4, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::blocks, 16, 0, 0, {.unroll = 2, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::blocks, 64, 0, 0, {.unroll = 1, .simdgroups = 8, .matrix = 2}},
    {kNvidia, kNvidia, Way::few, 8, 512, 0, {.outputs = 2, .unroll = 1, .simdgroups = 8}},
    {0, kNvidia, Way::few, 8, 512, 0, {.outputs = 4, .unroll = 1, .simdgroups = 4}},
    {0, kNvidia, Way::few, 16, 512, 0, {.outputs = 2, .unroll = 1, .simdgroups = 4}},
    {0, kNvidia, Way::few, 16, 0, 0, {.outputs = 1, .unroll = 1, .simdgroups = 4}},
};

bool is_plain(DType format) { return format == DType::f16 || format == DType::bf16; }
bool is_nibbles(DType format) { return format == DType::q4_0 || format == DType::q4_k; }

// Three parts of x, and the sums of slices for each simdgroup.
int64_t shared_bytes(const LinearShape& shape, const LinearVariant& variant, int64_t rows) {
  const int64_t eights = shape.activation ? 2 * variant.matrix : variant.matrix;
  return rows * (3 * variant.unroll * 64 + (variant.split ? 0 : variant.simdgroups * eights * 8 * 4));
}

// Slices must be equally long, and whole turns of the loop.
bool fits_shared(const LinearShape& shape, const LinearVariant& variant, int64_t rows) {
  return shape.experts == 0 && is_plain(shape.format) && rows > kMostRows &&
         shape.cols % (32 * variant.lanes * variant.unroll) == 0 &&
         shared_bytes(shape, variant, rows) <= shape.threadgroup_bytes;
}

// Few rows at a time: what the kernels are specialised for.
int64_t row_bucket(int64_t rows, bool matrix) {
  if (matrix) return rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : kMostMatrixRows;
  for (int64_t bucket : {1, 2, 4, 8})
    if (rows <= bucket) return bucket;
  return kMostRows;
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

int64_t few_rows(const LinearShape& shape) {
  if (shape.experts > 0) return shape.rows;
  if (shape.decode_rows >= 0) return shape.decode_rows;
  return shape.rows <= kMostRows ? shape.rows : 0;
}

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

uint32_t activation_number(const LinearShape& shape) {
  if (shape.activation) return number_of(*shape.activation);
  return shape.plain_activation ? 3 + number_of(*shape.plain_activation) : 0;
}

int linear_lanes(DType format, int64_t cols) {
  const int64_t units = ceil_div(cols, packed_unit_columns(format));
  return units >= 128 ? 32 : units >= 64 ? 16 : units >= 16 ? 8 : 4;
}

int linear_slices(DType format, int64_t cols, int64_t outputs, bool experts) {
  if (tried_slices > 0) return tried_slices;
  if (experts) return cols >= 4096 ? 8 : cols >= 1536 ? 4 : 2;  // there are many of them
  if (is_plain(format)) return 8;
  if (outputs >= kManyOutputs && format != DType::q8_0) return 1;
  // Blocks of scales stay whole, and slices of equal length, where those of eight would not be, but for formats that
  // are cut finely for want of outputs.
  const int64_t blocks = cols / kSuperColumns;
  if ((is_nibbles(format) || (format == DType::q8_0 && outputs < kBusyOutputs)) && blocks >= 16) return 8;
  return blocks % 8 == 0 && blocks >= 32 ? 8 : 4;
}

bool fits_matrix(const LinearShape& shape) {
  if (shape.activation && shape.format_up != shape.format) return false;
  if (shape.experts > 0 && (shape.outputs % kPanelRows != 0 || shape.item_rows < 8)) return false;
  if (is_plain(shape.format)) return shape.format == shape.in && shape.cols % 32 == 0;
  return is_block_quantized(shape.format) && shape.in == DType::f16 && shape.cols % kSuperColumns == 0;
}

LinearVariant linear_variant(const LinearShape& shape, int family) {
  const bool mixed = shape.decode_rows >= 0 && shape.decode_rows < shape.rows;
  const bool matrix = fits_matrix(shape);
  const Way way = !matrix                            ? Way::few
                  : shape.format == DType::q8_0      ? Way::bytes
                  : is_nibbles(shape.format)         ? Way::nibbles
                  : is_block_quantized(shape.format) ? Way::blocks
                  : shape.experts == 0               ? Way::matrix
                  : shape.activation                 ? Way::gated_experts
                                                     : Way::experts;
  LinearVariant variant;
  for (const TableLine& line : kTable) {
    if (family < line.min_family || family > line.max_family) continue;
    if (line.way != Way::few && line.way != way) continue;
    const int64_t most = line.way == Way::few ? kMostRows : kMostMatrixRows;
    const int64_t rows = shape.experts > 0 ? shape.item_rows : mixed ? kMostRows : std::min(shape.rows, most);
    if (rows > line.max_rows || shape.outputs < line.min_outputs || shape.cols < line.min_cols) continue;
    variant = line.variant;
    break;
  }
  const bool tried = tried_variant && (tried_variant->matrix > 0) == matrix && !mixed;
  if (tried) variant = *tried_variant;
  if (variant.matrix > 0) {
    // Tiles need their registers, and have fewer simdgroups than there may be slices.
    if (mixed) variant.matrix = std::min(variant.matrix, 2);
    variant.lanes = linear_slices(shape.format, shape.cols, shape.outputs, shape.experts > 0);
    if (shape.activation && !tried) variant.matrix = std::max(variant.matrix / 2, 1);  // of each of two matrices
    if (shape.activation) variant.split = false;  // both matrices' sums are needed at once
    const int64_t bucket = row_bucket(shape.rows, true);
    while (variant.shared && variant.unroll > 1 && !fits_shared(shape, variant, bucket)) variant.unroll /= 2;
    if (variant.shared && (mixed || !fits_shared(shape, variant, bucket))) {
      variant.shared = variant.split = false;
      variant.unroll = 1;
      variant.matrix = std::min(variant.matrix, shape.activation ? 1 : 2);
      variant.crowd = 256;
    }
    if (mixed) variant.crowd = 256;
    if (!variant.shared && variant.lanes > 2) variant.simdgroups = std::min(variant.simdgroups, variant.lanes);
    return variant;
  }
  variant.lanes = linear_lanes(shape.format, shape.cols);
  if (shape.activation && !tried) variant.outputs = std::max(variant.outputs / 2, 1);  // of each of two matrices
  return variant;
}

LinearPlan plan_linear(const LinearShape& shape, const LinearVariant& variant) {
  LinearPlan plan;
  const int64_t few = few_rows(shape);
  const int64_t tiled = shape.rows - few;
  const DType type = tile_type(shape);
  const bool gated = shape.activation.has_value();

  // Beside tiles few rows cost little, so there they have one size.
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
  p.few_rows = static_cast<uint32_t>(few);

  plan.threads = tiled > 0 ? kLinearTileThreads : static_cast<uint32_t>(32 * variant.simdgroups);
  if (few > 0) {
    const int64_t simdgroups = plan.threads / 32;
    const int64_t sets = variant.shared ? simdgroups : std::max<int64_t>(simdgroups / variant.lanes, 1);
    const int64_t per_group =
        variant.matrix > 0 ? 8 * variant.matrix * sets : int64_t{plan.threads} / variant.lanes * variant.outputs;
    const int64_t row_groups = shape.experts > 0 ? shape.items : ceil_div(few, bucket);
    p.output_groups = static_cast<uint32_t>(ceil_div(shape.outputs, per_group));
    p.few_groups = p.output_groups * static_cast<uint32_t>(row_groups * (variant.split ? variant.lanes : 1));
    p.per_token = static_cast<uint32_t>(shape.per_token);
    if (variant.split) {
      const int64_t padded = ceil_div(shape.outputs, kPanelRows) * kPanelRows;
      plan.partial_bytes = static_cast<size_t>(row_groups * variant.lanes * padded * bucket) * 4;
      plan.add_groups = static_cast<uint32_t>(ceil_div(shape.outputs, int64_t{4 * kLinearAddThreads}));
      plan.add_row_groups = static_cast<uint32_t>(few);
    }
  }
  plan.groups = p.few_groups;
  plan.threadgroup_bytes = 16;
  if (few > 0 && variant.matrix > 0) {
    const int64_t eights = gated ? 2 * variant.matrix : variant.matrix;
    const int64_t simdgroups = plan.threads / 32;
    if (variant.shared) {
      plan.threadgroup_bytes = static_cast<size_t>(shared_bytes(shape, variant, bucket));
    } else {
      // Sums of the slices, and a corner for each simdgroup.
      const int64_t round = eights <= 4 ? std::min<int64_t>(bucket / 8, 2) : 1;
      const int64_t sets = std::max<int64_t>(simdgroups / variant.lanes, 1);
      plan.threadgroup_bytes =
          static_cast<size_t>(sets * variant.lanes * eights * 8 * 8 * round * 4 + simdgroups * 256 * 2);
    }
  }
  if (tiled > 0) {
    p.row_tiles = static_cast<uint32_t>(ceil_div(tiled, tile_rows));
    plan.groups +=
        p.row_tiles * static_cast<uint32_t>(ceil_div(shape.outputs, int64_t{kLinearTileOutputs / (gated ? 2 : 1)}));
    plan.threadgroup_bytes =
        std::max(plan.threadgroup_bytes,
                 static_cast<size_t>((tile_rows + kLinearTileOutputs) * kLinearTileStride) * dtype_bytes(type, 1));
  }

  const bool half = (tiled == 0 && variant.matrix == 0) || type == DType::f16;
  if (few > 0 && variant.matrix > 0 && variant.crowd > 256)
    plan.kernel = half                  ? variant.crowd > 512 ? "linear_half_768" : "linear_half_512"
                  : variant.crowd > 512 ? "linear_bfloat_768"
                                        : "linear_bfloat_512";
  else
    plan.kernel = half ? "linear_half" : type == DType::bf16 ? "linear_bfloat" : "linear_float";
  const auto simdgroups = static_cast<int64_t>(plan.threads / 32);
  plan.constants = {
      Constant::u(kLinearFormat, packed_format(shape.format)),
      Constant::u(kLinearFormatUp, packed_format(gated ? shape.format_up : shape.format)),
      Constant::u(kLinearRows, bucket),
      Constant::u(kLinearOutputs, few == 0              ? 1
                                  : variant.matrix == 0 ? variant.outputs
                                  : variant.shared      ? variant.simdgroups
                                                        : simdgroups % variant.lanes != 0),
      Constant::u(kLinearLanes, few > 0 ? variant.lanes : 32),
      Constant::u(kLinearUnroll, few > 0 ? variant.unroll : 1),
      Constant::u(kLinearTileRows, tile_rows),
      Constant::u(kLinearActivation, activation_number(shape)),
      Constant::u(kLinearX, static_cast<int64_t>(shape.in)),
      Constant::u(kLinearOut, static_cast<int64_t>(shape.out)),
      Constant::u(kLinearMatrix, few > 0 ? variant.matrix : 0),
      Constant::b(kLinearAccumulate, shape.accumulate),
      Constant::b(kLinearHasBias, shape.bias),
      Constant::b(kLinearHasBiasUp, shape.bias_up),
      Constant::b(kLinearAligned, shape.cols % 8 == 0),
      Constant::b(kLinearExperts, shape.experts > 0),
      Constant::b(kLinearSplit, few > 0 && variant.split),
  };
  return plan;
}

}  // namespace ingot::metal
