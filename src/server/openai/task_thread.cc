#include "server/openai/task_thread.h"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace ingot::server::openai {

struct TaskThread::Queue {
  std::mutex mutex;
  std::condition_variable posted;
  std::deque<std::function<void()>> tasks;
  bool stopped = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      posted.wait(lock, [this] { return stopped || !tasks.empty(); });
      if (stopped) return;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }
};

TaskThread::TaskThread() : queue_(std::make_shared<Queue>()), thread_([queue = queue_] { queue->run(); }) {}

void TaskThread::post(std::function<void()> task) {
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->stopped) return;
    queue_->tasks.push_back(std::move(task));
  }
  queue_->posted.notify_one();
}

void TaskThread::stop() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stopped = true;
    dropped.swap(queue_->tasks);
  }
  queue_->posted.notify_one();
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();
  else
    thread_.join();
}

}  // namespace ingot::server::openai
