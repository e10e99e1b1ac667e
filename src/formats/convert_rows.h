#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "formats/tensor.h"

namespace ingot {

class ThreadPool;

// [rows, cols] of format `from` written as format `to`, shared by the pool's threads. `cols` is a multiple of both
// block sizes; quantize() must know `to` (block_quant.h). The result does not depend on the number of threads.
void convert_rows(DType from, const std::byte* in, DType to, std::byte* out, int64_t rows, int64_t cols,
                  ThreadPool& pool);

// [rows, cols] of a plain format written as [cols, rows].
void transpose(const TensorView& tensor, std::byte* out);

}  // namespace ingot
