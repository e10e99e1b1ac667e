#pragma once

#include <Metal/Metal.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "backend/metal/linear/pack.h"
#include "backend/metal/linear/plan.h"
#include "backend/metal/memory.h"

namespace ingot::metal {

struct Context;

// The buffers of a product beside its shape. `up` is set for a gated one.
struct GemmOperands {
  BufferView weight, up;     // packed
  BufferView in;             // [rows, cols], all rows of the product
  BufferView bias, bias_up;  // f32 [N] or none, from the first output on
  BufferView out;            // from the first output of the first row on
};

// Many rows through a library of the device's maker (host_hooks.h), where there is one. Both operands are brought into
// plain rows in work memory, columns in the order of kernels/linear_params.h, weights a piece of the outputs at a time;
// the library multiplies slice after slice, and a kernel adds biases and applies activations. The bits are those of the
// kernels: the library must sum 16 columns at a time in a chain, as the matrix unit does, and not cut the columns.
class Gemm {
 public:
  explicit Gemm(NS::SharedPtr<MTL::Device> device);
  // "cuBLASLt 13.0"; empty: there is none.
  const std::string& name() const { return name_; }

  // Work memory of products of up to `rows` rows and matrices of up to `cols` columns and rows, for the memory plan.
  size_t work_bytes(int64_t rows, int64_t cols) const;
  bool takes(const LinearShape& shape) const;
  void encode(Context& context, const LinearShape& shape, const GemmOperands& operands);

 private:
  // One matrix, or two alike: sums [rows, width] = x W^T, slice by slice.
  void multiply(Context& context, const LinearShape& shape, DType format, int64_t outputs, int64_t width, int64_t rows,
                BufferView x, BufferView weights, BufferView sums);

  NS::SharedPtr<MTL::Device> device_;
  std::string name_;
  BufferPtr weights_, inputs_, sums_;
};

}  // namespace ingot::metal
