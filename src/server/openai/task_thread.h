#pragma once

#include <functional>
#include <memory>
#include <thread>

namespace ingot::server::openai {

// One thread that runs what is posted, in order: work that must not hold up the step loop. Tasks do not throw.
class TaskThread {
 public:
  TaskThread();
  ~TaskThread() { stop(); }

  void post(std::function<void()> task);  // dropped after stop()
  void stop();                            // waits for the running task, unless it is the caller; the others are dropped

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // also held by the thread, which may outlive this object by its last task
  std::thread thread_;
};

}  // namespace ingot::server::openai
