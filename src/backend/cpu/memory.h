#pragma once

#include <cstddef>
#include <memory>

namespace ingot::cpu {

// Zeroed memory straight from the system, page-aligned. Pages become real when first touched, so a generous size costs
// only address space. Throws Error(out_of_memory) when the system refuses.
class Pages {
 public:
  Pages() = default;
  // `huge`: ask for huge pages. Good for memory that will be used whole, wasteful for what is touched here and there.
  explicit Pages(size_t bytes, bool huge = false);
  ~Pages();
  Pages(Pages&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
    other.bytes_ = 0;
  }
  Pages& operator=(Pages&& other) noexcept;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory for weights, 64-byte aligned. Matrices lie close together in large arenas backed by huge pages where the
// system has them: reading weights at full speed needs few address translations (here 30 instead of 23 GB/s). An arena
// goes back to the system with the last matrix in it. Throws Error(out_of_memory).
std::shared_ptr<std::byte> allocate_weights(size_t bytes);

inline constexpr size_t align_up(size_t n, size_t alignment) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace ingot::cpu
