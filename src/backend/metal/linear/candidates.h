#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/metal/linear/plan.h"

// The ways a product can be computed, all with the same bits, and how products and ways are called. No Metal here.
namespace ingot::metal {

// By the kernels, or by a library of the device's maker (gemm.h).
struct LinearWay {
  bool library = false;
  LinearVariant variant;  // of the kernels

  friend bool operator==(const LinearWay&, const LinearWay&) = default;
};

// What a choice depends on: everything that the pipelines of a product and its speed do, but for the rows within a
// bucket.
struct ProductKey {
  DType format = DType::f16, format_up = DType::f16, in = DType::f16;
  uint32_t activation = 0;  // activation_number()
  bool gated = false;
  int64_t cols = 0, outputs = 0, experts = 0;
  int cuts = 0;
  int64_t rows = 0;  // the bucket: 1, 8, 16, 32, ... rows at most; of experts, LinearShape::item_rows

  static ProductKey of(const LinearShape& shape);
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

// "bf16 6144 x 5120", "q4_k 2 x 32768 x 5120" for two matrices, "bf16 128 experts 2048 x 768"; with what else there is.
std::string name_of(const ProductKey& key);
// "few m2 u4", "few m4 u2 c512 shared 8 split", "tiles 64 x 128 p4", "library": a text for each.
std::string name_of(const LinearWay& way);

// What is taken without a measurement. `library`: there is one that takes the product.
LinearWay default_way(const LinearShape& shape, int family, bool library);
// What is worth timing, the default first, by a rule from format, rows and family.
std::vector<LinearWay> candidate_ways(const LinearShape& shape, int family, bool library);

}  // namespace ingot::metal
