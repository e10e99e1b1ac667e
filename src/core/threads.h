#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace ingot {

class ThreadPool;

// One of the threads that run a job together. Handed to the job; all workers must make the same calls in the same
// order.
class Worker {
 public:
  int index() const { return index_; }
  int count() const;

  // Returns when every worker has arrived.
  void sync();

  // Calls f(i) once for each i in [0, n), on whichever worker is free, and returns on all workers when all are done.
  // Which worker gets which i differs from run to run, so the result must not depend on it.
  template <typename F>
  void share(int64_t n, F&& f) {
    std::atomic<int64_t>& next = begin_phase();
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < n;
         i = next.fetch_add(1, std::memory_order_relaxed))
      f(i);
    sync();
  }

 private:
  friend class ThreadPool;
  Worker(ThreadPool* pool, int index) : pool_(pool), index_(index) {}
  std::atomic<int64_t>& begin_phase();

  ThreadPool* pool_;
  int index_;
  uint64_t phase_ = 0;
};

// A fixed set of threads for fork-join work. Inside a job workers spin for a few microseconds at a barrier before they
// sleep; between jobs they sleep, so an idle process uses no CPU.
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

  // How many CPUs this process may use (its affinity mask), at least 1.
  static int available_cpus();

 private:
  friend class Worker;
  void work(int index);
  void arrive_and_wait();

  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };

  std::vector<std::thread> threads_;
  Job jobs_[kMaxQueued];
  alignas(64) std::atomic<uint64_t> posted_{0};
  alignas(64) std::atomic<uint64_t> finished_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  Counter next_[2];
  std::atomic<bool> stopping_{false};
};

// The calling thread's work can wait for that of others.
void lower_thread_priority();

}  // namespace ingot
