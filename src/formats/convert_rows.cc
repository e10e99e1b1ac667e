#include "formats/convert_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/ceil_div.h"
#include "core/threads.h"
#include "formats/block_quant.h"

namespace ingot {

void convert_rows(DType from, const std::byte* in, DType to, std::byte* out, int64_t rows, int64_t cols,
                  ThreadPool& pool) {
  if (rows == 0 || cols == 0) return;
  quantize(to, nullptr, 0, nullptr);  // refuses a format it does not write here, not on a thread
  constexpr int64_t kChunk = 65536;   // elements a thread takes at a time, about
  const int64_t chunk_rows = std::max<int64_t>(1, kChunk / cols);
  const auto width = static_cast<size_t>(cols);
  const size_t in_bytes = dtype_bytes(from, width), out_bytes = dtype_bytes(to, width);
  std::vector<std::vector<float>> values(static_cast<size_t>(pool.size()), std::vector<float>(width));
  pool.run([&](Worker& worker) {
    float* row_values = values[static_cast<size_t>(worker.index())].data();
    worker.share(ceil_div(rows, chunk_rows), [&](int64_t chunk) {
      const int64_t end = std::min(rows, (chunk + 1) * chunk_rows);
      for (int64_t row = chunk * chunk_rows; row < end; ++row) {
        dequantize(from, in + static_cast<size_t>(row) * in_bytes, width, row_values);
        quantize(to, row_values, width, out + static_cast<size_t>(row) * out_bytes);
      }
    });
  });
}

void transpose(const TensorView& tensor, std::byte* out) {
  const size_t size = dtype_bytes(tensor.dtype, 1);
  const auto rows = static_cast<size_t>(tensor.shape[0]), cols = static_cast<size_t>(tensor.shape[1]);
  constexpr size_t kTile = 32;
  for (size_t r0 = 0; r0 < rows; r0 += kTile)
    for (size_t c0 = 0; c0 < cols; c0 += kTile)
      for (size_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (size_t c = c0; c < std::min(cols, c0 + kTile); ++c)
          std::memcpy(out + (c * rows + r) * size, tensor.data.data() + (r * cols + c) * size, size);
}

}  // namespace ingot
