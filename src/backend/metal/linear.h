#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/metal/encoder.h"
#include "backend/metal/memory.h"

namespace ingot::metal {

// A matrix [rows, cols] on the device, in the layout its kernels want.
struct Matrix {
  std::string name;
  int64_t rows = 0, cols = 0;
  DType format = DType::f16;  // of the first part; parts of several formats keep their own below
  BufferPtr data;
  size_t bytes = 0;           // read when the whole matrix is used once
  struct Part {               // rows [first, first + rows) in one format, from `offset` on
    DType format = DType::f16;
    int64_t first = 0, rows = 0;
    size_t offset = 0;
  };
  std::vector<Part> parts;
};

// Bytes of the packed matrix, for the memory plan. A format without kernels is declined: Error(declined).
size_t packed_bytes(const MatrixSpec& spec);
// `drop_pages` is called with source ranges that will not be read again.
Matrix pack_matrix(const MatrixSpec& spec, Memory& memory,
                   const std::function<void(std::span<const std::byte>)>& drop_pages);

// out = in W^T (+ bias), or out += ...; see LinearOp.
struct LinearArgs {
  const Matrix* weight = nullptr;
  int64_t rows = 0;
  BufferView in;             // activation [rows, cols]
  BufferView bias;           // f32 [N] or none
  BufferView out;            // activation [rows, N]; f32 when `accumulate` or `f32_out`
  bool accumulate = false;
  bool f32_out = false;
};
void linear(Context& context, const LinearArgs& args);

struct GatedLinearArgs {
  const Matrix* gate = nullptr;
  const Matrix* up = nullptr;
  int64_t rows = 0;
  ActivationKind activation = ActivationKind::silu;
  BufferView in;                  // activation [rows, cols]
  BufferView gate_bias, up_bias;  // f32 [N] or none
  BufferView out;                 // activation [rows, N]
};
void gated_linear(Context& context, const GatedLinearArgs& args);

// Rows of a packed matrix as floats: out[t, :] = table[id(t), :] * scale (+ positions[position(t), :]).
// id(t) = token_ids[t], or previous[-1 - token_ids[t]] (at least 0) when that is negative.
struct EmbedArgs {
  const Matrix* table = nullptr;
  const Matrix* positions_table = nullptr;  // optional
  int64_t rows = 0;
  float scale = 1.0f;
  BufferView token_ids;  // int32 [rows]
  BufferView positions;  // int32 [rows]
  BufferView previous;   // int32: what the previous step sampled
  BufferView out;        // f32 [rows, cols]
};
void embed(Context& context, const EmbedArgs& args);

}  // namespace ingot::metal
