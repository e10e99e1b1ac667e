#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/metal/encoder.h"
#include "backend/metal/linear/pack.h"
#include "backend/metal/linear/plan.h"
#include "backend/metal/memory.h"

namespace ingot::metal {

// A matrix [rows, cols] on the device, in the layout of kernels/linear_formats.h.
struct Matrix {
  std::string name;
  int64_t rows = 0, cols = 0;
  DType format = DType::f16;  // of the first part; parts of several formats keep their own below
  BufferPtr data;
  size_t bytes = 0;  // read when the whole matrix is used once
  using Part = PackedPart;
  std::vector<Part> parts;
};

// Bytes of the packed matrix, for the memory plan: those of its tensors, rows rounded up to 8. Every format has
// kernels.
size_t packed_bytes(const MatrixSpec& spec);
// `drop_pages` is called with source ranges that will not be read again.
Matrix pack_matrix(const MatrixSpec& spec, Memory& memory,
                   const std::function<void(std::span<const std::byte>)>& drop_pages, ThreadPool& pool);

// out = in W^T (+ bias), or out += ...; see LinearOp.
struct LinearArgs {
  const Matrix* weight = nullptr;
  int64_t rows = 0;
  // How many of the first rows must have the same bits whatever the number of rows: the step's decode rows, or all rows
  // of the logits. They are multiplied in another order than the rest. Negative: chosen by the number of rows.
  int64_t decode_rows = -1;
  BufferView in;    // activation [rows, cols]
  BufferView bias;  // f32 [N] or none
  BufferView out;   // activation [rows, N]; f32 when `accumulate` or `f32_out`
  bool accumulate = false;
  bool f32_out = false;
  std::optional<ActivationKind> activation;  // of the result
};
// One dispatch for each part of the weight.
void linear(Context& context, const LinearArgs& args);

// Gate and up must be made of parts of equal numbers of rows (one each, in every known checkpoint), else
// Error(declined).
struct GatedLinearArgs {
  const Matrix* gate = nullptr;
  const Matrix* up = nullptr;
  int64_t rows = 0;
  int64_t decode_rows = -1;  // as for LinearArgs
  ActivationKind activation = ActivationKind::silu;
  BufferView in;                  // activation [rows, cols]
  BufferView gate_bias, up_bias;  // f32 [N] or none
  BufferView out;                 // activation [rows, N]
};
void gated_linear(Context& context, const GatedLinearArgs& args);

// Products grouped by expert, see ExpertGatedLinearOp and ExpertLinearOp: rows of `out` in the order of the route. With
// `up`, gated. `items` is the list of row groups that route() made for the same route.
struct ExpertLinearArgs {
  const Matrix* weight = nullptr;  // [experts][N, cols]
  const Matrix* up = nullptr;
  ExpertRoute route;
  ActivationKind activation = ActivationKind::silu;
  bool look_up = false;  // rows of `in` are the step's, not the pairs'
  BufferView in, out;    // activations; `out` is f32 without `up`
};
void expert_linear(Context& context, const ExpertLinearArgs& args);
// Rows of one expert that are multiplied at a time; from the rows of the step, rounded up to a power of two.
int64_t expert_item_rows(const ExpertRoute& route, int family);

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
