#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "backend/kinds.h"
#include "backend/metal/constant.h"
#include "backend/metal/linear/pack.h"

// Which kernel a matrix product takes, and with which constants and sizes. No Metal here: numbers in, numbers out.
namespace ingot::metal {

// Stands for NVIDIA GPUs where kernels' variants are chosen by the family of Apple's.
inline constexpr int kNvidiaFamily = 100;

// What a product is, beside its buffers. N = `outputs`.
struct LinearShape {
  DType format = DType::f16;                 // of the weight (the gate)
  DType format_up = DType::f16;              // of the second matrix, when gated
  std::optional<ActivationKind> activation;  // set: gated
  int64_t rows = 0, cols = 0, outputs = 0;
  int64_t out_stride = 0;  // elements
  // The first rows, whose bits must not depend on how many rows there are (decode rows, sampled rows). The others are
  // prefill: they take tiles. Negative: nobody knows, and rows choose by their number alone.
  int64_t decode_rows = -1;
  DType in = DType::f16;   // activations
  DType out = DType::f16;  // f32 to accumulate
  bool accumulate = false;
  bool bias = false, bias_up = false;
  std::optional<ActivationKind> plain_activation;  // of the result of one matrix
  // A stack of matrices with `outputs` rows each: rows come in `items` groups of up to `item_rows` (1, 2, 4, 8 or 16;
  // 8 or 16 on the matrix unit),
  // by a list that is made on the device. 0: one matrix.
  int64_t experts = 0, items = 0, item_rows = 0;
  int64_t per_token = 0;                 // > 0: rows of x are looked up, see kernels/linear.metal
  int64_t threadgroup_bytes = 32 << 10;  // that the device has for a threadgroup
};

// How few rows are cut (kernels/linear.metal), in registers or on the matrix unit; any choice of outputs, unroll,
// simdgroups, shared and split gives the same bits.
struct LinearVariant {
  int outputs = 4;     // of a lane group: 1, 2 or 4
  int lanes = 8;       // of a lane group: a power of two up to 32; matrix: slices. Sets the order of additions
  int unroll = 1;      // 1 to 4
  int simdgroups = 4;  // of a threadgroup, up to 8
  // Not 0: few rows take the matrix unit, 8 outputs times this a simdgroup. The order of additions is another one: a
  // family has it for a format or has it not.
  int matrix = 0;
  bool shared = false;  // matrix, 32 or 64 rows: simdgroups have outputs of their own and share x
  bool split = false;   // shared: threadgroups take one slice each, and another dispatch adds them
  int crowd = 256;      // matrix: threads that must find registers on a multiprocessor; 256, 512 or 768
};

// Lanes that share a dot product, and slices on the matrix unit: from format and shape of the matrix alone.
int linear_lanes(DType format, int64_t cols);
int linear_slices(DType format, int64_t cols, int64_t outputs, bool experts = false);
// Whether a family that has it takes the matrix unit for few rows of this product.
bool fits_matrix(const LinearShape& shape);
// How many rows, the first ones, are not prefill.
int64_t few_rows(const LinearShape& shape);
// Operands of the matrix unit for the others: the narrowest type that holds both sides.
DType tile_type(const LinearShape& shape);
// LINEAR_ACTIVATION of the kernels.
uint32_t activation_number(const LinearShape& shape);
// From the one table of variants. `family` is the newest Apple GPU family the device has.
LinearVariant linear_variant(const LinearShape& shape, int family);
// For benchmarks: where set, it stands for what the table has for few rows.
inline std::optional<LinearVariant> tried_variant;
inline int tried_slices = 0;  // likewise; 0: what linear_slices() says

struct LinearPlan {
  const char* kernel = nullptr;
  std::array<Constant, 17> constants{};
  LinearParams params{.output_groups = 1, .row_tiles = 1};
  uint32_t groups = 0, threads = 0;
  size_t threadgroup_bytes = 0;
  // Of sums between the two dispatches of a split product; 0: one dispatch. The second is linear_add, with the same
  // constants and kLinearAddThreads a threadgroup.
  size_t partial_bytes = 0;
  uint32_t add_groups = 0, add_row_groups = 0;
};
// The constants change with the rows only so far: products of 1, 2, 4, 8, 16, 32 and 64 decode rows, of 32 and 64
// prefill rows, and of those beside a decode row need every specialisation there is.
LinearPlan plan_linear(const LinearShape& shape, const LinearVariant& variant);

}  // namespace ingot::metal
