#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "formats/checkpoint.h"

namespace ingot {

class ThreadPool;

// Memory in whole pages, which can be given back piece by piece while the rest is still read.
class PageBuffer {
 public:
  explicit PageBuffer(size_t bytes);
  ~PageBuffer();
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;

  std::byte* data() { return data_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool contains(std::span<const std::byte> part) const;
  void drop(std::span<const std::byte> part) const;  // whole pages of it; they read as zeros from now on

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The bytes of a tensor of a checkpoint, computed where no file has them; they stay as long as this does.
struct TensorBytes {
  TensorBytes(const Checkpoint& checkpoint, const TensorView& tensor)
      : computed(tensor.is_computed() ? checkpoint.compute(tensor) : nullptr),
        bytes(computed ? computed->bytes() : tensor.data) {}

  std::shared_ptr<PageBuffer> computed;
  std::span<const std::byte> bytes;
};

// Tensors of another checkpoint beside others that no file has. Each of those is computed when it is asked for, on
// `threads` threads (0: one a core), and lives as long as whoever asked wants it: there is never a second copy of the
// whole model.
class ComputedCheckpoint : public Checkpoint {
 public:
  using Fill = std::function<void(std::byte* out, ThreadPool& pool)>;  // writes all bytes of a tensor

  // `source` may be null; errors call the checkpoint `name` then.
  ComputedCheckpoint(std::shared_ptr<const Checkpoint> source, int threads, std::string name = "");
  ~ComputedCheckpoint() override;

  void add(TensorView tensor);             // as it is, or as the source computes it
  void add(TensorView tensor, Fill fill);  // its `data` does not count

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override;
  uint64_t file_bytes() const override { return source_ ? source_->file_bytes() : 0; }
  void drop_pages(std::span<const std::byte> bytes) const override;
  std::shared_ptr<PageBuffer> compute(const TensorView& tensor) const override;
  const Checkpoint& stored() const override { return source_ ? source_->stored() : *this; }
  std::string describe() const override { return source_ ? source_->describe() : name_; }

 private:
  const std::shared_ptr<const Checkpoint> source_;
  const int threads_;
  const std::string name_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // names of tensors_
  std::map<std::string, Fill, std::less<>> fills_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<ThreadPool> pool_;  // started by the first tensor computed
  mutable std::vector<std::weak_ptr<PageBuffer>> computed_;
};

}  // namespace ingot
