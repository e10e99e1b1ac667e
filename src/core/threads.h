#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "core/awaited.h"

namespace ingot {

class ThreadPool;

// One of the threads that run a job together. Handed to the job; all workers must make the same calls in the same
// order. Nobody waits for a worker that the system took off its CPU, unless it was within f(i): the others do its
// share, and it passes by what was done without it. So what a job reads outside f(i) must not change before the job is
// over, or before a sync().
class Worker {
 public:
  int index() const { return index_; }
  int count() const;

  // Returns when every worker has arrived.
  void sync();

  // Calls f(i) once for each i in [0, n), on whichever worker is free, and returns on all workers when all are done.
  // Which worker gets which i differs from run to run, so the result must not depend on it. n < 2^32.
  template <typename F>
  void share(int64_t n, F&& f) {
    if (count() == 1) {
      for (int64_t i = 0; i < n; ++i) f(i);
      return;
    }
    const uint32_t phase = phase_++;
    for (int64_t i = claim(phase, n); i >= 0; i = claim(phase, n)) {
      f(i);
      finish_item(phase, n);
    }
    wait_for_end(phase);
  }

  // f() once, on whichever worker comes first; returns on all when it is done.
  template <typename F>
  void once(F&& f) {
    share(1, [&](int64_t) { f(); });
  }

 private:
  friend class ThreadPool;
  Worker(ThreadPool* pool, int index) : pool_(pool), index_(index) {}
  int64_t claim(uint32_t phase, int64_t n);  // -1: nothing is left of the phase
  void finish_item(uint32_t phase, int64_t n);
  void wait_for_end(uint32_t phase);

  ThreadPool* pool_;
  int index_;
  uint32_t phase_ = 0;  // calls of share() so far, of all jobs
};

// A fixed set of threads for fork-join work. Inside a job workers that wait for others spin for a few microseconds
// before they sleep; between jobs they sleep, so an idle process uses no CPU.
class ThreadPool {
 public:
  using Job = std::function<void(Worker&)>;
  static constexpr int kMaxQueued = 4;

  explicit ThreadPool(int count);  // count >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Queues a job for all workers and returns its number; jobs run one after another, in order. At most kMaxQueued are
  // outstanding. The job must not throw: there is no one to catch it on the other side of a barrier.
  uint64_t post(Job job);
  void wait(uint64_t number);
  void run(Job job) { wait(post(std::move(job))); }

  // How many CPUs this process may use, by its affinity mask and its control group's quota; at least 1.
  static int available_cpus();

 private:
  friend class Worker;
  void work(int index);
  void arrive_and_wait();

  std::vector<std::thread> threads_;
  Job jobs_[kMaxQueued];
  alignas(64) Awaited<uint64_t> posted_;
  alignas(64) Awaited<uint64_t> finished_;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) Awaited<uint32_t> generation_;
  // The phase under way and the next of its items, 32 bits each, in one word: whoever takes an item knows of which
  // phase it is.
  alignas(64) std::atomic<uint64_t> items_{0};
  alignas(64) std::atomic<int64_t> items_done_{0};   // of that phase
  alignas(64) Awaited<uint32_t> phase_ends_;         // counted, for those who sleep
  std::atomic<bool> stopping_{false};
};

// The calling thread's work can wait for that of others.
void lower_thread_priority();

// What the calling thread has had of a core, in microseconds: a busy machine adds nothing to it.
double thread_us();

}  // namespace ingot
