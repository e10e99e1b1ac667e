#include "backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace ingot::cpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kArenaBytes = size_t{64} << 20;  // of address space; memory comes as it is touched
constexpr size_t kSmall = size_t{64} << 10;       // not worth a place in an arena

struct Arena {
  Pages pages;
  std::byte *next, *end;

  explicit Arena(size_t bytes) : pages(bytes + kHugePage, true) {
    const size_t misaligned = reinterpret_cast<size_t>(pages.data()) % kHugePage;
    next = pages.data() + (misaligned == 0 ? 0 : kHugePage - misaligned);
    end = next + bytes;
  }
};

std::mutex mutex;
std::weak_ptr<Arena> current;  // where the next matrix goes if it fits

}  // namespace

Pages::Pages(size_t bytes, bool huge) {
  if (bytes == 0) return;
  bytes = align_up(bytes, kPage);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
  flags |= MAP_NORESERVE;
#endif
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED)
    throw_error(ErrorKind::out_of_memory,
                "cpu: the system refused {} MiB of memory; use a smaller model, fewer KV blocks or a smaller step",
                bytes >> 20);
#ifdef MADV_HUGEPAGE
  if (huge && bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: without it is only slower
#else
  (void)huge;
#endif
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

std::shared_ptr<std::byte> allocate_weights(size_t bytes) {
  bytes = align_up(bytes, 64);
  if (bytes <= kSmall) {
    auto* p = static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64)));
    if (p == nullptr) throw_error(ErrorKind::out_of_memory, "weights: no memory for {} bytes", bytes);
    return {p, [](std::byte* q) { std::free(q); }};
  }
  const std::lock_guard lock(mutex);
  std::shared_ptr<Arena> arena = current.lock();
  if (!arena || static_cast<size_t>(arena->end - arena->next) < bytes) {
    arena = std::make_shared<Arena>(std::max(kArenaBytes, align_up(bytes, kHugePage)));
    current = arena;
  }
  std::byte* p = arena->next;
  arena->next += bytes;
  return {std::move(arena), p};
}

}  // namespace ingot::cpu
