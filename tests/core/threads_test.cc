#include "core/threads.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <chrono>
#include <numeric>
#include <random>
#include <thread>
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

// One that the system took off its CPU outside its share of the work holds nobody up, and does nothing twice when it is
// back: here it comes back when the others are done.
TEST(ThreadPool, NobodyWaitsForALateWorker) {
  for (const int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::vector<int> hits(64, 0);
    std::atomic<int> ended{0};
    std::atomic<bool> all_ended{false};
    pool.run([&](Worker& worker) {
      if (worker.index() == 0)
        while (!all_ended) std::this_thread::yield();
      for (int round = 0; round < 100; ++round) {
        worker.share(64, [&](int64_t i) { hits[i] += 1; });
        worker.share(round % 3, [&](int64_t i) { hits[i] += 1; });
      }
      if (++ended == worker.count() - 1) all_ended = true;
      worker.sync();
      worker.share(64, [&](int64_t i) { hits[i] += 1; });
    });
    EXPECT_EQ(ended, threads);
    for (int i = 0; i < 64; ++i) EXPECT_EQ(hits[i], 101 + (i == 0 ? 66 : i == 1 ? 33 : 0)) << i;
  }
}

// Workers come and go at every point between and within phases, and what a phase wrote is there in the next.
TEST(ThreadPool, LateWorkersComeBackAtAnyPoint) {
  ThreadPool pool(4);
  std::vector<int64_t> sums(16, 0);
  pool.run([&](Worker& worker) {
    std::minstd_rand random(static_cast<unsigned>(worker.index() + 1));
    for (int64_t round = 0; round < 300; ++round) {
      if (random() % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      worker.share(16, [&](int64_t i) {
        ASSERT_EQ(sums[(i * 5 + 3) % 16] / 2, round);
        if (i % 5 == 0) std::this_thread::yield();
      });
      worker.share(16, [&](int64_t i) { ++sums[i]; });
      worker.once([&] {
        for (int64_t& sum : sums) ASSERT_EQ(sum++, 2 * round + 1);
      });
    }
  });
  for (const int64_t sum : sums) EXPECT_EQ(sum, 600);
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

// Two threads answer each other, the one too late to be waited for at times, the other too early: a wake that is lost
// leaves both asleep.
template <typename T>
void expect_every_change_is_seen() {
  constexpr int kRounds = 20000;
  Awaited<T> asked, answered;
  std::thread other([&] {
    for (T i = 0; i < kRounds; ++i) {
      asked.wait(i);
      answered.add(1);
    }
  });
  for (T i = 0; i < kRounds; ++i) {
    if (i % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    asked.store(i + 1);
    answered.wait(i);
    ASSERT_EQ(answered.load(), i + 1);
  }
  other.join();
}

TEST(Awaited, EveryChangeIsSeen) {
  expect_every_change_is_seen<uint32_t>();
  expect_every_change_is_seen<uint64_t>();
}

TEST(Awaited, AllWhoSleepWake) {
  Awaited<uint32_t> word;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i) sleepers.emplace_back([&word] { word.wait(0); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  word.store(1);
  for (std::thread& sleeper : sleepers) sleeper.join();
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

#if defined(__linux__)
// A server that was started in a real-time class passes it on to its threads, and there being nice counts for nothing.
TEST(LowerThreadPriority, LeavesARealTimeClass) {
  int policy = -1, nice = -1;
  std::thread([&] {
    const sched_param first{.sched_priority = 1};
    if (sched_setscheduler(0, SCHED_RR, &first) != 0) return;
    lower_thread_priority();
    policy = sched_getscheduler(0);
    nice = getpriority(PRIO_PROCESS, 0);
  }).join();
  if (policy < 0) GTEST_SKIP() << "no right to real-time classes";
  EXPECT_EQ(policy, SCHED_OTHER);
  EXPECT_GT(nice, 0);
}
#endif

}  // namespace
}  // namespace ingot
