#include "collective/lost_rank.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace ingot {
namespace {

constexpr std::chrono::milliseconds kMost{1250};

std::mutex mutex;
std::function<void(const std::string&)> last_words;
std::atomic<bool> doubted{false};

struct Said {
  std::mutex mutex;
  std::condition_variable changed;
  bool all = false;
};

}  // namespace

void on_lost_rank(std::function<void(const std::string& what)> farewell) {
  const std::lock_guard lock(mutex);
  last_words = std::move(farewell);
}

void doubt_ranks() { doubted = true; }
bool ranks_are_doubted() { return doubted; }

void say_farewell(const std::string& what) {
  const std::lock_guard lock(mutex);
  fmt::print(stderr, "ingot: {}; all ranks end\n", what);
  std::fflush(stderr);
  if (last_words) {
    const auto said = std::make_shared<Said>();
    std::thread([said, farewell = last_words, what] {
      farewell(what);
      const std::lock_guard done(said->mutex);
      said->all = true;
      said->changed.notify_all();
    }).detach();
    std::unique_lock waiting(said->mutex);
    said->changed.wait_for(waiting, kMost, [&] { return said->all; });
  }
}

}  // namespace ingot
