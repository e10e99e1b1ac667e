// The CPU threads of a device. One job at a time; the caller is worker 0.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace softmetal {

class Pool {
 public:
  explicit Pool(int workers);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls job(worker) once for every worker, and returns when all have.
  void run(const std::function<void(int)>& job);

 private:
  void loop(int worker);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int)>* job_ = nullptr;
  uint64_t round_ = 0;
  int left_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace softmetal
