// Ranks that are connected by TCP, as they are behind vLLM, have the bits of one.
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>

#include "backend/backend.h"
#include "collective/tcp_group.h"
#include "engine/follower.h"
#include "engine/internals.h"
#include "engine/sequences.h"

namespace ingot::testing {
namespace {

TEST(TcpRanks, HaveTheBitsOfOne) {
  EngineOptions options = fixture_options(fixture_model("llama-bf16-llama3"), "cpu");
  options.threads = 1;
  const auto logits_of = [](Engine& engine) {
    return run_as_served(engine, random_ids(21, engine.limits().vocab, 5), 4);
  };
  const Logits alone = logits_of(*Engine::load(options));

  options.tp = 2;
  const std::array<TcpListener, 2> listeners = {TcpListener("127.0.0.1"), TcpListener("127.0.0.1")};
  const std::vector<TcpRank> ranks = {{listeners[0].address(), "here", ""}, {listeners[1].address(), "here", ""}};
  const auto join = [&](int rank) {
    EngineOptions own = options;
    own.group = listeners[static_cast<size_t>(rank)].join(rank, ranks, TcpKey{}, std::chrono::seconds(60));
    return own;
  };
  bool is_loaded = false;
  auto other = std::async(std::launch::async, [&] { follow(join(1), [&](Backend&) { is_loaded = true; }); });
  Logits together;
  {
    const std::unique_ptr<Engine> engine = Engine::load(join(0));
    together = logits_of(*engine);
  }
  other.get();
  EXPECT_TRUE(is_loaded);
  ASSERT_EQ(alone.size(), together.size());
  for (size_t r = 0; r < alone.size(); ++r)
    EXPECT_EQ(std::memcmp(alone[r].data(), together[r].data(), alone[r].size() * sizeof(float)), 0) << "row " << r;
}

// Two ranks of which one's device fails in the first step.
void run_with_failure_of(int fails) {
  EngineOptions options = fixture_options(fixture_model("llama-bf16-llama3"), "cpu");
  options.threads = 1;
  options.tp = 2;
  const std::array<TcpListener, 2> listeners = {TcpListener("127.0.0.1"), TcpListener("127.0.0.1")};
  const std::vector<TcpRank> ranks = {{listeners[0].address(), "here", ""}, {listeners[1].address(), "there", ""}};
  const auto join = [&](int rank) {
    EngineOptions own = options;
    // Here both are one process, which the second would end while the first is still about to say why.
    TcpLoss loss;
    if (rank == 1) loss = [](const std::string&, bool) { std::this_thread::sleep_for(std::chrono::seconds(60)); };
    own.group = listeners[static_cast<size_t>(rank)].join(rank, ranks, TcpKey{}, std::chrono::seconds(60), loss);
    return own;
  };
  const auto other = std::async(std::launch::async, [&] {
    follow(join(1), [&](Backend& device) {
      if (fails == 1) device.inject_failure();
    });
  });
  const std::unique_ptr<Engine> engine = Engine::load(join(0));
  if (fails == 0) EngineInternals::device(*engine).inject_failure();
  run_as_served(*engine, random_ids(21, engine->limits().vocab, 5), 4);
}

// The others cannot know what a step has lost that failed on one device: all end at once, and it is said why.
TEST(TcpRanks, EndWhenAStepFailsOnOneDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_with_failure_of(0), ::testing::ExitedWithCode(1),
              "ingot: rank 0 on here: cpu: the step failed on the device.*; all ranks end");
  EXPECT_EXIT(run_with_failure_of(1), ::testing::ExitedWithCode(1),
              "ingot: rank 1 on there: cpu: the step failed on the device.*; all ranks end");
}

}  // namespace
}  // namespace ingot::testing
