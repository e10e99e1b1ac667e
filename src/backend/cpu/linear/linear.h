#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backend/cpu/isa.h"
#include "backend/kinds.h"
#include "backend/matrix.h"
#include "core/threads.h"

// Matrix products with packed weights: y = x W^T for any number of rows of x.
//
// The value of out[row, col] depends only on that row of x, on W and on the ISA: not on the number of rows, their
// neighbours, the number of workers or how the work was shared. Bit for bit.
namespace ingot::cpu {

// A [rows, cols] weight matrix rearranged for the kernels (see format.h), about as large as in the file.
class PackedMatrix {
 public:
  PackedMatrix();
  PackedMatrix(PackedMatrix&&) noexcept;
  PackedMatrix& operator=(PackedMatrix&&) noexcept;
  ~PackedMatrix();

  int64_t rows() const;
  int64_t cols() const;
  size_t bytes() const;  // of memory held
  Isa isa() const;       // the kernels that will run it

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  friend PackedMatrix pack_matrix(const MatrixSpec&, Isa, const DropPages&, ThreadPool*);
  friend PackedMatrix packed_before(const MatrixSpec&, Isa, std::shared_ptr<std::byte>);
  PackedMatrix(const MatrixSpec& spec, Isa isa);  // without its data
  std::unique_ptr<Impl> impl_;
};

// Exactly what PackedMatrix::bytes() will be.
size_t packed_bytes(const MatrixSpec& spec, Isa isa);

// Reads the parts panel by panel and calls `drop` (when set) with each source range that will not be read again, so
// that there are never two copies. With a pool, its workers share the work; call it from outside a job. Throws bad_file
// for parts that do not add up to [rows, cols], bad_call for an ISA that does not run here.
PackedMatrix pack_matrix(const MatrixSpec& spec, Isa isa, const DropPages& drop = nullptr, ThreadPool* pool = nullptr);

// The same matrix of the bytes that packing it gave before (packed_file.h), packed_bytes() of them. Tensors of the spec
// need no bytes.
PackedMatrix packed_before(const MatrixSpec& spec, Isa isa, std::shared_ptr<std::byte> data);

// One row as floats, exactly the source's values: out [cols]. The embedding lookup of a tied table.
void unpack_row(const PackedMatrix& matrix, int64_t row, float* out);

// out = activation(in W^T + bias), or out += the same; with `up`, out = activation(in W^T + bias) * (in U^T + up_bias).
// When W or U is made of several formats, their parts must have equal numbers of rows.
struct LinearArgs {
  const PackedMatrix* weight = nullptr;  // [N, K]
  const PackedMatrix* up = nullptr;      // the same, or none
  const float* in = nullptr;             // [rows, K], consecutive rows in_stride floats apart
  int64_t rows = 0;
  int64_t in_stride = 0;
  const float* bias = nullptr;     // optional [N]
  const float* up_bias = nullptr;  // optional [N]
  float* out = nullptr;            // [rows, N], out_stride floats apart; must not overlap `in`
  int64_t out_stride = 0;
  bool accumulate = false;                   // neither with `up` nor with an activation
  bool f32_in = false;                       // `in` is not rounded to bf16, whatever the ISA would do
  std::optional<ActivationKind> activation;  // of the result; set with `up`
  void* scratch = nullptr;  // linear_scratch_bytes(rows, K, workers), 64-byte aligned, the same for all workers
};

// Products grouped by expert: rows [starts[e], starts[e + 1]) of `out` belong to matrix e of a stack. With `up`, out =
// activation(x G^T) * (x U^T), else out = x G^T. Experts without rows are not read.
struct ExpertLinearArgs {
  const PackedMatrix* weight = nullptr;  // [experts][N, K]
  const PackedMatrix* up = nullptr;      // the same, or none
  ActivationKind activation = ActivationKind::silu;
  int64_t experts = 0;
  int64_t rows = 0;                 // of `out`
  const int32_t* starts = nullptr;  // [experts + 1]
  const int32_t* order = nullptr;   // x of row i is row order[i] / per_token of `in`; nullptr: row i itself
  int64_t per_token = 1;
  const float* in = nullptr;  // [.., K]
  float* out = nullptr;       // [rows, N]
  void* scratch = nullptr;    // expert_scratch_bytes(rows, K)
};
size_t expert_scratch_bytes(int64_t rows, int64_t cols);

// Scratch of one call, for any weight format: activations in the kernels' form.
size_t linear_scratch_bytes(int64_t rows, int64_t cols, int workers);

// Called by every worker of a job with equal arguments. `in` must be complete on entry; `out` is on return, for all
// workers.
void linear(const LinearArgs& args, Worker& worker);
// Returns the bytes of weights that were read, on every worker.
size_t expert_linear(const ExpertLinearArgs& args, Worker& worker);

}  // namespace ingot::cpu
