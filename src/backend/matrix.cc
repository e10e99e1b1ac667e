#include "backend/matrix.h"

#include <algorithm>

#include "core/ceil_div.h"
#include "core/error.h"

namespace ingot {

void check_matrix(const MatrixSpec& spec) {
  int64_t rows = 0;
  for (const MatrixPart& part : spec.parts) {
    const TensorView& tensor = *part.tensor;
    const DTypeInfo& info = dtype_info(tensor.dtype);
    if (tensor.shape.size() != 2 ||
        (part.first_col < 0 ? tensor.shape[1] != spec.cols : tensor.shape[1] < part.first_col + spec.cols))
      throw_error(ErrorKind::bad_file, "tensor {}: expected a matrix of {} columns for {}", tensor.name, spec.cols,
                  spec.name);
    if (spec.cols % info.block_size != 0 || std::max<int64_t>(part.first_col, 0) % info.block_size != 0)
      throw_error(ErrorKind::bad_file, "tensor {}: {} columns are not a multiple of the {} block of {}", tensor.name,
                  spec.cols, info.name, info.block_size);
    if (tensor.data.size() != dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements())))
      throw_error(ErrorKind::bad_file, "tensor {}: {} bytes do not match its shape", tensor.name, tensor.data.size());
    if (part.interleaved_head_size != 0 &&
        (part.interleaved_head_size % 2 != 0 || tensor.shape[0] % part.interleaved_head_size != 0))
      throw_error(ErrorKind::bad_file, "tensor {}: {} rows are not whole heads of {}", tensor.name, tensor.shape[0],
                  part.interleaved_head_size);
    rows += tensor.shape[0];
  }
  int64_t column = 0;
  for (const int64_t end : spec.slices) {
    const int64_t unit = std::max(2, dtype_info(spec.parts[0].tensor->dtype).block_size);
    if (end < column || column % unit != 0)
      throw_error(ErrorKind::internal, "matrix {}: no slice of its columns can begin at {} and end at {}", spec.name,
                  column, end);
    column = end;
  }
  const size_t slices = spec.slices.size();
  if (slices > 0 && (column != spec.cols || spec.parts.size() > 1 || (slices != 1 && slices != 2 && slices != 4)))
    throw_error(ErrorKind::internal, "matrix {}: {} slices of {} of its {} columns", spec.name, slices, column,
                spec.cols);
  if (spec.groups > 1) {
    bool alike = spec.rows % spec.groups == 0;
    for (const MatrixPart& part : spec.parts) alike = alike && part.tensor->dtype == spec.parts[0].tensor->dtype;
    if (!alike)
      throw_error(ErrorKind::declined, "matrix {}: its {} experts differ in size or format, which is not supported",
                  spec.name, spec.groups);
  }
  if (rows != spec.rows || spec.rows < 1 || spec.cols < 1)
    throw_error(ErrorKind::bad_file, "matrix {}: its tensors have {} rows of {} columns, expected {}", spec.name, rows,
                spec.cols, spec.rows);
}

const uint8_t* MatrixSource::row(int64_t row) const {
  for (const MatrixPart& part : spec_.parts) {
    const TensorView& tensor = *part.tensor;
    if (row < tensor.shape[0])
      return reinterpret_cast<const uint8_t*>(tensor.data.data()) +
             dtype_bytes(tensor.dtype, static_cast<size_t>(part.source_row(row) * tensor.shape[1] +
                                                           std::max<int64_t>(part.first_col, 0)));
    row -= tensor.shape[0];
  }
  return nullptr;
}

void MatrixSource::drop_before(int64_t row) {
  for (size_t i = 0; drop_ && i < spec_.parts.size() && row > 0; ++i) {
    const MatrixPart& part = spec_.parts[i];
    const TensorView& tensor = *part.tensor;
    int64_t rows = std::min(row, tensor.shape[0]);
    if (part.interleaved_head_size > 0) rows -= rows % part.interleaved_head_size;  // taken out of order
    const size_t bytes = dtype_bytes(tensor.dtype, static_cast<size_t>(rows * tensor.shape[1]));
    if (bytes > dropped_[i]) drop_(tensor.data.subspan(dropped_[i], bytes - dropped_[i]));
    dropped_[i] = std::max(dropped_[i], bytes);
    row -= tensor.shape[0];
  }
}

void MatrixSource::drop_rows(int64_t begin, int64_t end) const {
  for (size_t i = 0; drop_ && i < spec_.parts.size() && end > 0; ++i) {
    const TensorView& tensor = *spec_.parts[i].tensor;
    // Those of a head are taken out of order: it is done with when all of them are.
    const int64_t unit = std::max<int64_t>(1, spec_.parts[i].interleaved_head_size);
    const int64_t first = ceil_div(std::max<int64_t>(begin, 0), unit) * unit;
    const int64_t last = std::min(end, tensor.shape[0]) / unit * unit;
    const auto at = [&](int64_t row) { return dtype_bytes(tensor.dtype, static_cast<size_t>(row * tensor.shape[1])); };
    if (first < last) drop_(tensor.data.subspan(at(first), at(last) - at(first)));
    begin -= tensor.shape[0];
    end -= tensor.shape[0];
  }
}

}  // namespace ingot
