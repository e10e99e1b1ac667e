#include "backend/cpu/linear/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "core/error.h"

namespace ingot::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegionBytes = size_t{64} << 20;  // of address space; memory comes as it is touched
constexpr size_t kSmall = size_t{64} << 10;        // not worth a place in a region

struct Region {
  std::byte* mapping = nullptr;
  size_t mapped = 0;
  std::byte* next = nullptr;
  std::byte* end = nullptr;

  explicit Region(size_t bytes) {
    mapped = bytes + kHugePage;
    void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      throw_error(ErrorKind::out_of_memory, "weights: the system has no {} bytes of address space left", mapped);
    mapping = static_cast<std::byte*>(p);
    const size_t misaligned = reinterpret_cast<size_t>(mapping) % kHugePage;
    next = mapping + (misaligned == 0 ? 0 : kHugePage - misaligned);
    end = next + bytes;
#if defined(MADV_HUGEPAGE)
    madvise(next, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is only slower
#endif
  }
  ~Region() { munmap(mapping, mapped); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

std::mutex mutex;
std::weak_ptr<Region> current;  // where the next matrix goes if it fits

}  // namespace

std::shared_ptr<std::byte> allocate_weights(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes <= kSmall) {
    auto* p = static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(bytes, 64)));
    if (p == nullptr) throw_error(ErrorKind::out_of_memory, "weights: no memory for {} bytes", bytes);
    return {p, [](std::byte* q) { std::free(q); }};
  }
  const std::lock_guard lock(mutex);
  std::shared_ptr<Region> region = current.lock();
  if (!region || static_cast<size_t>(region->end - region->next) < bytes) {
    region = std::make_shared<Region>(std::max(kRegionBytes, (bytes + kHugePage - 1) / kHugePage * kHugePage));
    current = region;
  }
  std::byte* p = region->next;
  region->next += bytes;
  return {std::move(region), p};
}

}  // namespace ingot::cpu
