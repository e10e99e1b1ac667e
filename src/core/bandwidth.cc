#include "core/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/threads.h"

namespace ingot {

double measure_read_bandwidth(int threads, int64_t bytes) {
  const int64_t words = bytes / 8;
  constexpr int64_t kChunk = (1ll << 20) / 8;
  constexpr int kSweeps = 4;
  const std::vector<uint64_t> memory(static_cast<size_t>(words), 1);
  ThreadPool pool(threads);
  std::atomic<uint64_t> sink{0};  // keeps the compiler from dropping the reads
  double best = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const auto start = std::chrono::steady_clock::now();
    pool.run([&](Worker& worker) {
      worker.share(words / kChunk, [&](int64_t chunk) {
        const uint64_t* p = &memory[chunk * kChunk];
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (int64_t i = 0; i < kChunk; i += 4) a += p[i], b += p[i + 1], c += p[i + 2], d += p[i + 3];
        sink.fetch_add(a + b + c + d, std::memory_order_relaxed);
      });
    });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(words) * 8 / seconds / 1e9);
  }
  return best;
}

}  // namespace ingot
