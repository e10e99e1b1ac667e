#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "ingot/engine.h"

namespace ingot::python {

// An engine wants to be called by one thread; Python's orchestrators have several. So it gets a thread of its own, and
// every call is handed to that one. Blocks the caller: release the GIL before.
class EngineThread {
 public:
  explicit EngineThread(std::unique_ptr<Engine> engine) : engine_(std::move(engine)), thread_([this] { serve(); }) {}

  ~EngineThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    news_.notify_all();
    thread_.join();
  }

  // What does not change; safe from any thread.
  const Engine& engine() const { return *engine_; }

  void validate(const Step& step) {
    call([&] { engine_->validate(step); });
  }
  uint64_t submit(const Step& step) {
    return call([&] { return submit_now(step); });
  }
  StepResult run(const Step& step) {
    return call([&] { return wait_now(submit_now(step)); });
  }

  // `overlap`: someone plans the next step meanwhile. The engine cannot be entered while it waits, so the wait begins
  // once that step is submitted, or half of what a step takes is over: the device does not idle between the two.
  StepResult wait(uint64_t ticket, bool overlap) {
    const auto task = std::make_shared<std::packaged_task<StepResult()>>([this, ticket] { return wait_now(ticket); });
    std::future<StepResult> result = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      waits_.push_back({[task] { (*task)(); }, ticket, overlap});
    }
    news_.notify_all();
    return result.get();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr Clock::duration kLeast = std::chrono::microseconds(50);

  struct Wait {
    std::function<void()> run;
    uint64_t ticket = 0;
    bool overlap = false;
  };

  // The task is shared: the thread may still be leaving it when the caller has its result and is gone.
  template <typename F>
  std::invoke_result_t<F> call(F f) {
    const auto task = std::make_shared<std::packaged_task<std::invoke_result_t<F>()>>(std::move(f));
    auto result = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back([task] { (*task)(); });
    }
    news_.notify_all();
    return result.get();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      std::function<void()> run;
      const bool due = !waits_.empty() && (!waits_.front().overlap || waits_.front().ticket != last_ticket_ ||
                                           Clock::now() >= submit_time_ + half_step_);
      if (!calls_.empty()) {
        run = std::move(calls_.front());
        calls_.pop_front();
      } else if (due) {
        run = std::move(waits_.front().run);
        waits_.pop_front();
      } else if (!waits_.empty()) {
        news_.wait_until(lock, submit_time_ + half_step_);
        continue;
      } else {
        news_.wait(lock);
        continue;
      }
      lock.unlock();
      run();
      lock.lock();
    }
  }

  // The rest is the thread's alone.
  uint64_t submit_now(const Step& step) {
    last_ticket_ = engine_->submit(step).id;
    submit_time_ = Clock::now();
    return last_ticket_;
  }

  StepResult wait_now(uint64_t ticket) {
    StepResult result = engine_->wait({ticket});
    const std::chrono::duration<double, std::micro> run(result.stats.run_us);
    // A short step after long ones counts at once; a long one after short ones by and by.
    half_step_ = std::min(std::chrono::duration_cast<Clock::duration>(run / 2), half_step_ * 2 + kLeast);
    return result;
  }

  std::unique_ptr<Engine> engine_;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> calls_;
  std::deque<Wait> waits_;
  bool stop_ = false;
  uint64_t last_ticket_ = 0;
  Clock::time_point submit_time_;
  Clock::duration half_step_{};
  std::thread thread_;  // last: it uses the others
};

}  // namespace ingot::python
