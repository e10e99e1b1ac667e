#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/follower.h"
#include "engine/sequences.h"
#include "engine/thread_group.h"

// Engines whose ranks are threads of the test.
namespace ingot::testing {

inline EngineOptions rank_options(const std::string& model, const std::string& device = "cpu") {
  EngineOptions options = fixture_options(model, device);
  options.threads = 1;
  return options;
}

// How ranks have a model together.
struct Cut {
  int tp = 1, pp = 1;
  Cut(int tp_, int pp_ = 1) : tp(tp_), pp(pp_) {}
};

// lead(options of rank 0) while the other ranks follow on threads. `change` makes the options of a rank other.
inline void with_followers(const EngineOptions& options, Cut cut, const std::function<void(EngineOptions)>& lead,
                           const std::function<void(int rank, EngineOptions&)>& change = nullptr) {
  std::vector<std::shared_ptr<Group>> groups = ThreadGroup::make(cut.tp * cut.pp);
  const auto options_of = [&](int rank) {
    EngineOptions own = options;
    own.tp = cut.tp;
    own.pp = cut.pp;
    own.group = groups[static_cast<size_t>(rank)];
    if (change) change(rank, own);
    return own;
  };
  std::vector<std::thread> others;
  for (int rank = 1; rank < cut.tp * cut.pp; ++rank)
    others.emplace_back([own = options_of(rank)] {
      try {
        follow(own);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    });
  std::exception_ptr failed;
  try {
    lead(options_of(0));
  } catch (...) {
    failed = std::current_exception();
  }
  groups.clear();
  for (std::thread& other : others) other.join();
  if (failed) std::rethrow_exception(failed);
}

// use(engine) on rank 0.
inline void with_ranks(const EngineOptions& options, Cut cut, const std::function<void(Engine&)>& use,
                       const std::function<void(int rank, EngineOptions&)>& change = nullptr) {
  with_followers(options, cut, [&](const EngineOptions& own) { use(*Engine::load(own)); }, change);
}

inline std::string rank_load_error(const EngineOptions& options, Cut cut,
                                   const std::function<void(int rank, EngineOptions&)>& change = nullptr) {
  try {
    with_ranks(options, cut, [](Engine&) {}, change);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Rows of a prompt and of decoding.
inline Logits rank_logits(Engine& engine) { return run_as_served(engine, random_ids(21, engine.limits().vocab, 5), 4); }

inline void expect_equal(const Logits& expected, const Logits& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t r = 0; r < expected.size(); ++r)
    ASSERT_EQ(std::memcmp(expected[r].data(), got[r].data(), expected[r].size() * sizeof(float)), 0)
        << "row " << r << " differs by " << max_difference({expected[r]}, {got[r]});
}

}  // namespace ingot::testing
