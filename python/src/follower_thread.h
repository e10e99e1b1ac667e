#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "collective/group.h"
#include "core/error.h"
#include "engine/follower.h"

namespace ingot::python {

// A rank that follows, on a thread of its own. Blocks the caller while it loads: release the GIL before.
class FollowerThread {
 public:
  explicit FollowerThread(EngineOptions options) : state_(std::make_shared<State>()) {
    thread_ = std::thread([state = state_, own = std::move(options)]() mutable { run(*state, std::move(own)); });
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->is_loaded || state_->is_done; });
    if (state_->is_loaded) return;
    lock.unlock();
    thread_.join();
    throw_error(ErrorKind::declined, "{}", state_->error.empty() ? "rank 0 says why" : state_->error);
  }

  // The thread needs the GIL to let go of a group that Python has made.
  ~FollowerThread() {
    const nanobind::gil_scoped_release release;
    std::unique_lock lock(state_->mutex);
    // It ends when rank 0 does. If that one stays, the process of this rank goes first, and with it the thread.
    const bool is_done = state_->changed.wait_for(lock, kPatience, [this] { return state_->is_done; });
    lock.unlock();
    if (is_done)
      thread_.join();
    else
      thread_.detach();
  }

 private:
  static constexpr std::chrono::seconds kPatience{2};

  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_loaded = false, is_done = false;
    std::string error;
  };

  static void run(State& state, EngineOptions options) {
    const std::shared_ptr<Group> group = options.group;
    const auto set = [&state](bool State::* what) {
      const std::lock_guard lock(state.mutex);
      state.*what = true;
      state.changed.notify_all();
    };
    try {
      follow(std::move(options), [&](Backend&) { set(&State::is_loaded); });
    } catch (const std::exception& error) {
      state.error = error.what();
      if (state.is_loaded) group->abort(state.error);  // rank 0 would wait for this one
    }
    set(&State::is_done);
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace ingot::python
