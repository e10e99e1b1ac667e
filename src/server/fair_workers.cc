#include "server/fair_workers.h"

#ifdef __linux__
#include <sys/resource.h>
#endif

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace ingot::server {
namespace {

// Tokenizing a long prompt can wait a little longer; the streams that run cannot.
void stand_back() {
#ifdef __linux__
  constexpr int kNicer = 5;
  setpriority(PRIO_PROCESS, 0, kNicer);  // of this thread alone
#endif
}

}  // namespace

struct FairWorkers::Queue {
  struct Lane {
    std::deque<std::function<void()>> jobs;
    int running = 0;
    uint64_t last = 0;  // when it was served: a count of jobs
  };

  explicit Queue(int each_in) : each(each_in) {}

  // The lane whose turn it is; end() when there is none with something to do.
  std::map<std::string, Lane>::iterator next() {
    const auto rank = [](const Lane& lane) { return std::tuple(lane.running, lane.last); };
    auto best = lanes.end();
    for (auto it = lanes.begin(); it != lanes.end(); ++it) {
      if (it->second.jobs.empty() || it->second.running >= each) continue;
      if (best == lanes.end() || rank(it->second) < rank(best->second)) best = it;
    }
    return best;
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      auto lane = lanes.end();
      posted.wait(lock, [&] { return stopped || (lane = next()) != lanes.end(); });
      if (stopped) return;
      std::function<void()> job = std::move(lane->second.jobs.front());
      lane->second.jobs.pop_front();
      ++lane->second.running;
      lane->second.last = ++served;
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
      --lane->second.running;
      if (lane->second.running == 0 && lane->second.jobs.empty())
        lanes.erase(lane);
      else
        posted.notify_one();  // it may have waited for this one to end
    }
  }

  const int each;
  std::mutex mutex;
  std::condition_variable posted;
  std::map<std::string, Lane> lanes;  // clients with something to do or being done
  uint64_t served = 0;
  bool stopped = false;
};

FairWorkers::FairWorkers(int each, Manners manners) : queue_(std::make_shared<Queue>(std::max(1, each))) {
  for (int i = 0; i < (each > 1 ? each + 1 : 1); ++i)
    threads_.emplace_back([queue = queue_, manners] {
      if (manners == Manners::yielding) stand_back();
      queue->run();
    });
}

void FairWorkers::post(const std::string& client, std::function<void()> job) {
  const std::shared_ptr<Queue> queue = queue_;  // the job may be the end of this object
  {
    const std::lock_guard lock(queue->mutex);
    if (queue->stopped) return;
    queue->lanes[client].jobs.push_back(std::move(job));
  }
  queue->posted.notify_one();
}

void FairWorkers::stop() {
  std::vector<std::deque<std::function<void()>>> dropped;  // destroyed without the lock: jobs hold what may call back
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stopped = true;
    for (auto& [client, lane] : queue_->lanes) dropped.push_back(std::exchange(lane.jobs, {}));
  }
  queue_->posted.notify_all();
  for (std::thread& thread : threads_) {
    if (!thread.joinable()) continue;
    if (thread.get_id() == std::this_thread::get_id())
      thread.detach();
    else
      thread.join();
  }
}

}  // namespace ingot::server
