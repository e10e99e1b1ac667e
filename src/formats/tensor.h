#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace ingot {

// A tensor as it lies in a (memory-mapped) file. `shape` is outermost first, as in Hugging Face: a matrix is [rows,
// cols] and a row is contiguous. The parsers guarantee that `data` is inside the file and exactly as long as the shape
// says; in GGUF it starts at a multiple of 8 bytes at least, in safetensors it may start at any byte. A tensor that no
// file has in this format has a length but no address: Checkpoint::compute writes it where it is wanted.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;

  bool is_computed() const { return data.data() == nullptr && !data.empty(); }

  int64_t elements() const {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    return n;
  }
};

// `data` of a tensor that is computed. Only its size may be looked at.
inline std::span<const std::byte> computed_bytes(size_t size) { return {static_cast<const std::byte*>(nullptr), size}; }

}  // namespace ingot
