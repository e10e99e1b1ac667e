#include "counting_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

// A sanitizer brings an operator new of its own, and wants what it gave back.
#ifdef INGOT_SANITIZED
#define INGOT_COUNT_NEW 0
#else
#define INGOT_COUNT_NEW 1
#endif

#if INGOT_COUNT_NEW
void* operator new(size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::aligned_alloc(static_cast<size_t>(alignment), (bytes + static_cast<size_t>(alignment) - 1) /
                                                                       static_cast<size_t>(alignment) *
                                                                       static_cast<size_t>(alignment)))
    return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

#endif

namespace ingot::test {

bool can_count_allocations() { return INGOT_COUNT_NEW != 0; }

void start_counting_allocations() {
  allocations = 0;
  counting = true;
}
int stop_counting_allocations() {
  counting = false;
  return allocations;
}

}  // namespace ingot::test
