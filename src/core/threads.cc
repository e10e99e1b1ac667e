#include "core/threads.h"

#include <algorithm>
#include <ctime>
#include <utility>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <pthread.h>
#endif

#include "core/cgroup.h"

namespace ingot {
namespace {

// About 20 us of spinning: longer than the usual spread between workers, far shorter than a scheduler tick.
constexpr int kSpins = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `word` differs from `old`: spins a little, then sleeps.
template <typename T>
void wait_for_change(const Awaited<T>& word, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load() != old) return;
    pause_cpu();
  }
  word.wait(old);
}

constexpr uint64_t kItemMask = 0xFFFFFFFF;
constexpr uint32_t phase_of(uint64_t items) { return static_cast<uint32_t>(items >> 32); }
constexpr uint64_t first_item(uint32_t phase) { return uint64_t{phase} << 32; }

}  // namespace

int Worker::count() const { return pool_->size(); }

void Worker::sync() { pool_->arrive_and_wait(); }

// Calls that all workers have made are equal in number, but for those who are late: nobody is early, since the end of a
// phase is waited for.
int64_t Worker::claim(uint32_t phase, int64_t n) {
  uint64_t items = pool_->items_.load(std::memory_order_acquire);
  while (phase_of(items) == phase) {
    const auto item = static_cast<int64_t>(items & kItemMask);
    if (n == 0) {  // the first to come ends it
      if (pool_->items_.compare_exchange_weak(items, first_item(phase + 1), std::memory_order_acq_rel)) {
        pool_->phase_ends_.add(1);
        return -1;
      }
      continue;
    }
    if (item == n) return -1;
    if (pool_->items_.compare_exchange_weak(items, items + 1, std::memory_order_acq_rel)) return item;
  }
  return -1;
}

void Worker::finish_item(uint32_t phase, int64_t n) {
  if (pool_->items_done_.fetch_add(1, std::memory_order_acq_rel) + 1 < n) return;
  pool_->items_done_.store(0, std::memory_order_relaxed);
  pool_->items_.store(first_item(phase + 1), std::memory_order_release);
  pool_->phase_ends_.add(1);  // whoever sleeps looks again
}

void Worker::wait_for_end(uint32_t phase) {
  const auto over = [&] { return phase_of(pool_->items_.load(std::memory_order_acquire)) != phase; };
  for (int i = 0; i < kSpins; ++i) {
    if (over()) return;
    pause_cpu();
  }
  for (;;) {
    const uint32_t ends = pool_->phase_ends_.load();
    if (over()) return;
    pool_->phase_ends_.wait(ends);
  }
}

ThreadPool::ThreadPool(int count) {
  count = std::max(count, 1);
  threads_.resize(count);  // sized first: workers read the size
  for (int i = 0; i < count; ++i) threads_[i] = std::thread([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  posted_.add(1);
  for (std::thread& thread : threads_) thread.join();
}

uint64_t ThreadPool::post(Job job) {
  const uint64_t number = posted_.load() + 1;
  if (number > kMaxQueued) wait(number - kMaxQueued);
  jobs_[number % kMaxQueued] = std::move(job);
  posted_.store(number);
  return number;
}

void ThreadPool::wait(uint64_t number) {
  for (uint64_t done = finished_.load(); done < number; done = finished_.load()) finished_.wait(done);
}

void ThreadPool::work(int index) {
  Worker worker(this, index);
  for (uint64_t done = 0;; ++done) {
    wait_for_change(posted_, done);
    if (stopping_.load(std::memory_order_relaxed) && posted_.load() == done + 1) return;
    jobs_[(done + 1) % kMaxQueued](worker);
    arrive_and_wait();
    if (index == 0) {
      finished_.store(done + 1);
    } else {
      wait_for_change(finished_, done);
    }
    // With a worker on every CPU and the next job already queued, the thread that waits for this one would get a CPU at
    // the next scheduler tick only, milliseconds from now: let it run first.
    std::this_thread::yield();
  }
}

void ThreadPool::arrive_and_wait() {
  const uint32_t generation = generation_.load();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size()) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1);
    return;
  }
  wait_for_change(generation_, generation);
}

int ThreadPool::available_cpus() {
  int cpus = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cpus = CPU_COUNT(&set);
  // More threads than that are all stopped for the rest of a period when they have used it up.
  cpus = static_cast<int>(std::min<double>(cpus, cgroup_cpus()));
#endif
  return std::max(1, cpus);
}

void lower_thread_priority() {
#if defined(__linux__)
  constexpr int kNice = 5;
  // In a real-time class, which a thread inherits, being nice would count for nothing.
  const sched_param none{};
  const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  if (policy == SCHED_FIFO || policy == SCHED_RR) sched_setscheduler(0, SCHED_OTHER, &none);
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
#elif defined(__APPLE__)
  pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#endif
}

double thread_us() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

}  // namespace ingot
