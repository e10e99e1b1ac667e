#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor.h"

namespace ingot {

class PageBuffer;

// The tensors of one model, wherever they came from: a GGUF file (or its splits) or safetensors (or its shards).
// Everything stays memory-mapped while the object lives.
class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  virtual const std::vector<TensorView>& tensors() const = 0;       // in file order
  virtual const TensorView* find(std::string_view name) const = 0;  // nullptr when absent
  virtual uint64_t file_bytes() const = 0;                          // all files together

  // Tells the system that these bytes, once read, will not be needed again (drops clean pages; data stays readable).
  virtual void drop_pages(std::span<const std::byte> bytes) const = 0;

  // The bytes of a tensor of this checkpoint that is_computed(); `tensor` is known by its name. drop_pages takes parts
  // of them as well.
  virtual std::shared_ptr<PageBuffer> compute(const TensorView& tensor) const;
  // The checkpoint whose tensors are as the files have them: this one, unless some of its tensors are computed.
  virtual const Checkpoint& stored() const { return *this; }

  // As find, but throws bad_file "FILE: tensor NAME is missing from the file".
  const TensorView& get(std::string_view name) const;

  virtual std::string describe() const = 0;  // for errors: the path
};

}  // namespace ingot
