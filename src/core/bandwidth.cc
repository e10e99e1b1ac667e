#include "core/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "core/threads.h"

namespace ingot {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// In huge pages where the system has them, as weights are: on a Zen 5 core small ones are read at three quarters of the
// speed.
std::unique_ptr<uint64_t[], decltype(&std::free)> allocate(int64_t bytes) {
  const size_t whole = (static_cast<size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, whole);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(memory, whole, MADV_HUGEPAGE);
#endif
  return {static_cast<uint64_t*>(memory), &std::free};
}

}  // namespace

double measure_read_bandwidth(int threads, int64_t bytes) {
  const int64_t words = bytes / 8;
  constexpr int64_t kChunk = (1ll << 20) / 8;
  constexpr int kSweeps = 4;
  constexpr int kSums = 16;
  const auto memory = allocate(bytes);
  ThreadPool pool(threads);
  // Touched first by those who read it: where memory has a node, it is theirs.
  pool.run([&](Worker& worker) {
    worker.share(words / kChunk, [&](int64_t chunk) { std::fill_n(&memory[chunk * kChunk], kChunk, uint64_t{1}); });
  });
  std::atomic<uint64_t> sink{0};  // keeps the compiler from dropping the reads
  double best = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](Worker& worker) {
      worker.share(words / kChunk, [&](int64_t chunk) {
        const uint64_t* p = &memory[chunk * kChunk];
        uint64_t sums[kSums] = {};
        for (int64_t i = 0; i < kChunk; i += kSums)
          for (int j = 0; j < kSums; ++j) sums[j] += p[i + j];
        for (int j = 1; j < kSums; ++j) sums[0] += sums[j];
        sink.fetch_add(sums[0], std::memory_order_relaxed);
      });
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(words) * 8 / seconds / 1e9);
  }
  return best;
}

}  // namespace ingot
