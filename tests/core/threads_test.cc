#include "core/threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <numeric>
#include <vector>

namespace ingot {
namespace {

TEST(ThreadPool, SharesEveryIndexOnce) {
  ThreadPool pool(3);
  std::vector<int> hits(1000, 0);
  pool.run([&](Worker& worker) {
    for (int round = 0; round < 50; ++round) worker.share(1000, [&](int64_t i) { hits[i] += 1; });
  });
  for (int h : hits) EXPECT_EQ(h, 50);
}

TEST(ThreadPool, PhasesAreOrdered) {
  ThreadPool pool(4);
  std::vector<int> a(64, 0), b(64, 0);
  pool.run([&](Worker& worker) {
    for (int round = 0; round < 200; ++round) {
      worker.share(64, [&](int64_t i) { a[i] = round; });
      worker.share(64, [&](int64_t i) { b[i] = a[63 - i]; });
      worker.share(64, [&](int64_t i) { ASSERT_EQ(b[i], round); });
    }
  });
}

TEST(ThreadPool, JobsRunInOrder) {
  ThreadPool pool(2);
  std::vector<int> order;
  uint64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    last = pool.post([&order, i](Worker& worker) {
      if (worker.index() == 0) order.push_back(i);
    });
  }
  pool.wait(last);
  std::vector<int> expected(20);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(order, expected);
}

TEST(ThreadPool, SleepsWhenIdle) {
  ThreadPool pool(4);
  pool.run([](Worker& worker) { worker.sync(); });
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  const long before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_ms() - before, 100);
}

}  // namespace
}  // namespace ingot
