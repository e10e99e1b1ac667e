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

// Columns of a matrix that are packed, and summed, by themselves.
struct LinearCut {
  int64_t first_col = 0, cols = 0;
  size_t offset = 0;  // bytes, a multiple of 16, from the start of the matrix
};

// What a product is, beside its buffers. N = `outputs`.
struct LinearShape {
  DType format = DType::f16;                 // of the weight (the gate)
  DType format_up = DType::f16;              // of the second matrix, when gated
  std::optional<ActivationKind> activation;  // set: gated
  int64_t rows = 0, cols = 0, outputs = 0;
  int64_t out_stride = 0;  // elements
  int64_t x_stride = 0;    // elements; 0: cols
  DType in = DType::f16;   // activations
  DType out = DType::f16;  // f32 to accumulate
  bool accumulate = false;
  bool bias = false, bias_up = false;
  std::optional<ActivationKind> plain_activation;  // of the result of one matrix
  // A stack of matrices with `outputs` rows each: rows come in `items` groups of up to `item_rows` (8 to 128), by a
  // list that is made on the device. 0: one matrix.
  int64_t experts = 0, items = 0, item_rows = 0;
  int64_t first_expert = 0;  // whose matrix is the first of the stack
  int64_t per_token = 0;     // > 0: rows of x are looked up, see kernels/linear.metal
  // Columns that ranks could share, in two to four cuts that are summed one by one, (0 + 1) + (2 + 3): `left` of them
  // make the first sum. 0: not in cuts. One matrix with plain f32 results alone.
  std::array<LinearCut, kLinearMostCuts> cut{};
  int cuts = 0, left = 0;
  int64_t threadgroup_bytes = 32 << 10;  // that the device has for a threadgroup
};

// How a product is cut. Whatever the cut, the order of additions (kernels/linear_params.h) is the same, and so are the
// bits.
struct LinearVariant {
  int tile_rows = 0;      // 32, 64 or 128: tiles; 0: few rows
  int tile_outputs = 64;  // tiles: rows of W; 64 or 128
  int tile_parts = 2;     // tiles: simdgroups that share the rows; of 4 each has half the sums of 2
  int tile_width = 32;    // tiles: outputs of a simdgroup; 32 or 64
  int tile_turn = 64;     // tiles: columns in threadgroup memory at a time; 32 or 64
  int buffers = 1;        // tiles: turns in threadgroup memory; 1 to 4
  bool copies = false;    // tiles: what needs no decoding is copied there beside the threads; 2 buffers or more
  bool totals = false;    // tiles: sums of the slices so far wait in threadgroup memory
  int matrix = 1;         // few rows: 8 outputs times this a simdgroup
  int unroll = 0;      // few rows: steps loaded together, 1 to 4, of what fits_streams(); 0: any product, unit by unit
  int shared = 0;      // simdgroups with outputs of their own that share x, of 16-bit weights and 16 to 64 rows or of
                       // blocks and up to 16; 0: none
  bool split = false;  // shared: threadgroups take one slice each, and another dispatch adds them
  int sets = 0;        // unrolled, not shared: simdgroups of each slice in a threadgroup; 0: as few as keep it busy
  int crowd = 256;     // unrolled: threads that must find registers on a multiprocessor; 256, 512, 640 or 768

  friend bool operator==(const LinearVariant&, const LinearVariant&) = default;
};

// Columns of a slice, from the columns of the matrix and its format alone.
int64_t slice_columns(DType format, int64_t cols);
// Whether few rows of this product can be unrolled.
bool fits_streams(const LinearShape& shape);
// Whether tiles can be copied: rows of x, and of W where it has numbers, lie as the matrix unit wants them, in pieces
// of 16 bytes without an end within one.
bool fits_copies(const LinearShape& shape);
// Operands of the matrix unit: the narrowest type that holds both sides.
DType tile_type(const LinearShape& shape);
// LINEAR_ACTIVATION of the kernels.
uint32_t activation_number(const LinearShape& shape);
LinearOut linear_out(const LinearShape& shape);
// Whether few rows of blocks take x from threadgroup memory by default, on NVIDIA's GPUs.
bool shares_blocks(const LinearShape& shape);
// Rows that one read of the weights is for, if the way has room for them: all, or those of an item of experts.
int64_t rows_together(const LinearShape& shape);
// How many of them are still few.
int64_t most_few_rows(const LinearShape& shape, int family);
// Needs no measuring: what is taken until something faster was found (candidates.h). `family` is the newest Apple GPU
// family the device has.
LinearVariant linear_variant(const LinearShape& shape, int family);
// Whether the kernels can compute the product so.
bool fits(const LinearShape& shape, const LinearVariant& variant, int family);
// For tests and benches: where set, few rows go so, or where it is tiles, more.
inline std::optional<LinearVariant> tried_variant;

struct LinearPlan {
  const char* kernel = nullptr;
  std::array<Constant, 19> constants{};
  LinearParams params{.output_groups = 1, .row_tiles = 1, .item_tiles = 1};
  std::array<LinearColumns, kLinearMostCuts> cuts{};  // buffer 11, of a product in cuts
  uint32_t groups = 0, threads = 0;
  size_t threadgroup_bytes = 0;
  // Of sums between the two dispatches of a split product, or those of cuts that tiles keep. The second dispatch is
  // linear_add, with the same constants and kLinearAddThreads a threadgroup; no groups: there is none.
  size_t partial_bytes = 0;
  uint32_t add_groups = 0, add_row_groups = 0;
  uint32_t bucket = 0;  // rows that are multiplied at a time: LINEAR_ROWS
};
// The constants change with the rows only so far: products of 1, 2, 4, ... rows and of the most there are need every
// specialisation there is.
LinearPlan plan_linear(const LinearShape& shape, const LinearVariant& variant);

}  // namespace ingot::metal
