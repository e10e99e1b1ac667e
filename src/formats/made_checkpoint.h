#pragma once

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

// Another checkpoint with some of its tensors in another format. Each of those is made when it is asked for, on
// `threads` threads (0: one a core), and lives as long as whoever asked wants it: there is never a second copy of the
// whole model.
class MadeCheckpoint : public Checkpoint {
 public:
  MadeCheckpoint(std::shared_ptr<const Checkpoint> source, int threads);
  ~MadeCheckpoint() override;

  const std::vector<TensorView>& tensors() const override { return tensors_; }
  const TensorView* find(std::string_view name) const override;
  uint64_t file_bytes() const override { return source_->file_bytes(); }
  void drop_pages(std::span<const std::byte> bytes) const override;
  std::shared_ptr<PageBuffer> make(const TensorView& tensor) const override;
  const Checkpoint& stored() const override { return source_->stored(); }
  std::string describe() const override { return source_->describe(); }

 protected:
  // Whether this checkpoint makes a tensor of tensors_ that is_made(), and not its source.
  virtual bool makes(std::string_view name) const {
    (void)name;
    return true;
  }
  // Writes the bytes of `tensor`, one of tensors_ that this checkpoint makes.
  virtual void fill(const TensorView& tensor, std::byte* out, ThreadPool& pool) const = 0;
  void index_tensors();  // once tensors_ is complete

  const std::shared_ptr<const Checkpoint> source_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // names of tensors_

 private:
  const int threads_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<ThreadPool> pool_;  // started by the first tensor made
  mutable std::vector<std::weak_ptr<PageBuffer>> made_;
};

}  // namespace ingot
