#include "backend/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "core/error.h"

namespace ingot::cpu {

Pages::Pages(size_t bytes, bool huge) {
  if (bytes == 0) return;
  constexpr size_t kPage = 4096;
  constexpr size_t kHugePage = size_t{2} << 20;
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
  if (huge && bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
#else
  (void)huge, (void)kHugePage;
#endif
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
}

uint64_t available_memory() {
  uint64_t available = 0;
#if defined(__linux__)
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    uint64_t kib = 0;
    if (!(meminfo >> kib)) break;
    std::getline(meminfo, unit);
    if (key == "MemAvailable:") available = kib << 10;
  }
  uint64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    available = std::min(available, limit > used ? limit - used : 0);
#else
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) available = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
#endif
  return available;
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace ingot::cpu
