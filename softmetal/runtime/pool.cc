#include "runtime/pool.h"

namespace softmetal {

Pool::Pool(int workers) {
  for (int w = 1; w < workers; ++w) threads_.emplace_back([this, w] { loop(w); });
}

Pool::~Pool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void Pool::run(const std::function<void(int)>& job) {
  if (!threads_.empty()) {
    std::lock_guard lock(mutex_);
    job_ = &job;
    left_ = static_cast<int>(threads_.size());
    ++round_;
    start_.notify_all();
  }
  job(0);
  if (threads_.empty()) return;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return left_ == 0; });
}

void Pool::loop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(int)>* job;
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stopping_ || round_ != seen; });
      if (stopping_) return;
      seen = round_;
      job = job_;
    }
    (*job)(worker);
    std::lock_guard lock(mutex_);
    if (--left_ == 0) done_.notify_one();
  }
}

}  // namespace softmetal
