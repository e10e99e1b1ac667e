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

// Prefill rows through a library of the device's maker (host_hooks.h), where there is one: weights are brought into
// plain rows in work memory, a part of the outputs at a time, then multiplied; biases and activations follow in a
// kernel of their own. A row's bits depend on the row and the weights alone, as in every other way.
class Gemm {
 public:
  explicit Gemm(NS::SharedPtr<MTL::Device> device);
  // "cuBLASLt 13.0"; empty: there is none.
  const std::string& name() const { return name_; }

  // Work memory of products of up to `rows` rows and matrices of up to `cols` columns and rows, for the memory plan.
  size_t work_bytes(int64_t rows, int64_t cols) const;
  bool takes(const LinearShape& shape) const;
  // Rows from shape.decode_rows on.
  void encode(Context& context, const LinearShape& shape, const GemmOperands& operands);

 private:
  BufferView reserve(Context& context, BufferPtr& buffer, size_t bytes, const char* label);
  void multiply(Context& context, const LinearShape& shape, DType out_type, bool accumulate, int64_t outputs,
                int64_t out_stride, int64_t rows, BufferView x, BufferView weights, BufferView out);

  NS::SharedPtr<MTL::Device> device_;
  std::string name_;
  BufferPtr weights_, sums_;
};

}  // namespace ingot::metal
