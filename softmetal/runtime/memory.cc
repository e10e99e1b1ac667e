#include "runtime/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "runtime/poison.h"

namespace softmetal {
namespace {

[[maybe_unused]] constexpr size_t kPage = 16384;   // as on the device
[[maybe_unused]] constexpr size_t kGuard = 65536;  // an index that is a little off must not land in another buffer

[[maybe_unused]] size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

CpuMemory::CpuMemory(size_t bytes, Storage s, bool is_tracked, bool guarded) {
  length = bytes;
  storage = s;
  tracked = is_tracked;
#if defined(SOFTMETAL_ASAN)
  // The sanitizer's own allocator: its red zones begin right behind the last byte.
  void* data = nullptr;
  if (posix_memalign(&data, 256, bytes ? bytes : 1) != 0) throw std::bad_alloc();
  data_ = static_cast<char*>(data);
  if (guarded) fill_poison(data_, bytes);
#else
  const size_t guard = guarded ? kGuard : 0;
  mapping_bytes_ = round_up(bytes ? bytes : 1, kPage) + 2 * guard;
  mapping_ = mmap(nullptr, mapping_bytes_, guarded ? PROT_NONE : PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<char*>(mapping_) + guard;
  if (guarded) {
    mprotect(data_, mapping_bytes_ - 2 * guard, PROT_READ | PROT_WRITE);
    fill_poison(data_, bytes);
  }
#endif
}

CpuMemory::~CpuMemory() {
#if defined(SOFTMETAL_ASAN)
  std::free(data_);
#else
  munmap(mapping_, mapping_bytes_);
#endif
}

}  // namespace softmetal
