#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/tensor.h"

namespace ingot {

// One source tensor of a matrix, and the order in which its rows are taken.
struct MatrixPart {
  const TensorView* tensor = nullptr;  // [rows, cols]
  // GGUF llama files store Q and K with each head's rotary halves interleaved (row 2i and 2i+1 are a pair); we rotate
  // halves (i and i + size/2), so such rows are put back at load. 0: rows as they are.
  int64_t interleaved_head_size = 0;
  int64_t first_col = -1;  // >= 0: the matrix has only some of the tensor's columns, from here on

  int64_t source_row(int64_t row) const {
    if (interleaved_head_size == 0) return row;
    const int64_t half = interleaved_head_size / 2;
    const int64_t in_head = row % interleaved_head_size;
    return row - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  }
};

// A [rows, cols] matrix for y = x W^T, stacked from one or more tensors along the rows (q over k over v). Parts may
// differ in format.
struct MatrixSpec {
  std::string name;
  std::vector<MatrixPart> parts;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t groups = 1;  // > 1: as many matrices of rows / groups rows, one over the other (a layer's experts)
  // Where each slice of the columns ends: 1, 2 or 4 of them, some may be empty. A device whose ranks give one another's
  // bits sums each by itself, and then (0 + 1) + (2 + 3), so that the columns can be cut there. Empty: one slice.
  std::vector<int64_t> slices;
  static constexpr int kMostSlices = 4;
};

// Throws Error when the tensors do not make up the matrix that the spec says, or not one that devices take.
void check_matrix(const MatrixSpec& spec);

// Called while weights are loaded with source ranges that will not be read again.
using DropPages = std::function<void(std::span<const std::byte>)>;

// The rows of a matrix where its tensors have them, read from front to back.
class MatrixSource {
 public:
  MatrixSource(const MatrixSpec& spec, DropPages drop)
      : spec_(spec), drop_(std::move(drop)), dropped_(spec.parts.size(), 0) {}

  const uint8_t* row(int64_t row) const;
  // Rows before this one will not be read again.
  void drop_before(int64_t row);
  // Nor these, [begin, end), whatever is before them. By several threads at once, of rows that others do not name.
  void drop_rows(int64_t begin, int64_t end) const;

 private:
  const MatrixSpec& spec_;
  DropPages drop_;
  std::vector<size_t> dropped_;  // bytes of each tensor
};

}  // namespace ingot
