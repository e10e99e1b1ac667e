#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/metal/linear/gemm.h"
#include "backend/metal/linear/plan.h"

namespace ingot::metal {

// How a product by warpgroups is cut: tiles of 128 outputs (64 of each matrix of a gated product) by `tile_rows` rows.
struct WideVariant {
  int tile_rows = 128;  // 16, 32, 64 or 128
  bool split = false;   // threadgroups take one slice of a tile, and another dispatch adds them
  bool twice = false;   // two threadgroups a multiprocessor
};
// Instead of what the product asks for; for measuring.
inline std::optional<WideVariant> tried_wide;

struct WidePlan {
  LinearPlan product;            // kernel linear_wide_*; its second dispatch is linear_add
  const char* inputs = nullptr;  // kernel that lays out x, with the same constants and parameters
  size_t input_bytes = 0;        // of what it leaves
  uint32_t input_turns = 0, input_tiles = 0, input_threads = 0;
};

// Many rows on GPUs whose simdgroups multiply four together (kernels/linear_wide.metal), in the order of all products.
class Wide {
 public:
  // `cores`: how many threadgroups such a GPU runs side by side; 0: it is not one.
  explicit Wide(unsigned cores) : cores_(cores) {}

  unsigned cores() const { return cores_; }
  bool takes(const LinearShape& shape) const;
  // Whether there are tiles enough for one and a half a multiprocessor.
  bool busy(const LinearShape& shape) const;
  WideVariant variant(const LinearShape& shape) const;
  WidePlan plan(const LinearShape& shape, const WideVariant& variant) const;
  // Work memory of products of up to `rows` rows and matrices of up to `cols` columns, for the memory plan.
  size_t work_bytes(int64_t rows, int64_t cols) const;
  // Of sums between two dispatches, for products of any number of rows up to that of the shape.
  size_t most_partial_bytes(const LinearShape& shape) const;
  void encode(Context& context, const LinearShape& shape, const GemmOperands& operands);

 private:
  unsigned cores_;
  BufferPtr inputs_;
};

}  // namespace ingot::metal
