#include "formats/computed_checkpoint.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/error.h"
#include "core/threads.h"
#include "formats/mapped_file.h"

namespace ingot {

PageBuffer::PageBuffer(size_t bytes) : size_(bytes) {
  void* memory =
      ::mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorKind::out_of_memory, "no memory for a tensor of {} bytes while loading", bytes);
  data_ = static_cast<std::byte*>(memory);
}

PageBuffer::~PageBuffer() { ::munmap(data_, std::max<size_t>(size_, 1)); }

bool PageBuffer::contains(std::span<const std::byte> part) const {
  const auto begin = reinterpret_cast<uintptr_t>(data_), first = reinterpret_cast<uintptr_t>(part.data());
  return first >= begin && first - begin <= size_ && part.size() <= size_ - (first - begin);
}

void PageBuffer::drop(std::span<const std::byte> part) const { drop_mapped_pages(part); }

ComputedCheckpoint::ComputedCheckpoint(std::shared_ptr<const Checkpoint> source, int threads, std::string name)
    : source_(std::move(source)),
      threads_(threads > 0 ? threads : ThreadPool::available_cpus()),
      name_(std::move(name)) {}

ComputedCheckpoint::~ComputedCheckpoint() = default;

void ComputedCheckpoint::add(TensorView tensor) {
  index_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

void ComputedCheckpoint::add(TensorView tensor, Fill fill) {
  tensor.data = computed_bytes(dtype_bytes(tensor.dtype, static_cast<size_t>(tensor.elements())));
  fills_.emplace(tensor.name, std::move(fill));
  add(std::move(tensor));
}

const TensorView* ComputedCheckpoint::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void ComputedCheckpoint::drop_pages(std::span<const std::byte> bytes) const {
  {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<PageBuffer>& computed : computed_)
      if (const std::shared_ptr<PageBuffer> buffer = computed.lock(); buffer != nullptr && buffer->contains(bytes))
        return buffer->drop(bytes);
  }
  if (source_) source_->drop_pages(bytes);
}

std::shared_ptr<PageBuffer> ComputedCheckpoint::compute(const TensorView& tensor) const {
  const auto fill = fills_.find(tensor.name);
  if (fill == fills_.end()) return source_ ? source_->compute(tensor) : Checkpoint::compute(tensor);
  auto buffer = std::make_shared<PageBuffer>(find(tensor.name)->data.size());
  const std::lock_guard lock(mutex_);
  if (pool_ == nullptr) pool_ = std::make_unique<ThreadPool>(threads_);
  fill->second(buffer->data(), *pool_);
  std::erase_if(computed_, [](const std::weak_ptr<PageBuffer>& computed) { return computed.expired(); });
  computed_.push_back(buffer);
  return buffer;
}

}  // namespace ingot
