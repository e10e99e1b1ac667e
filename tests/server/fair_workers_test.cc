#include "server/fair_workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "server/test_server.h"

namespace ingot::server {
namespace {

using namespace std::chrono_literals;
using ingot::testing::eventually;

TEST(FairWorkers, ClientsTakeTurns) {
  std::mutex mutex;
  std::vector<std::string> order;
  std::atomic<bool> go_on{false};
  FairWorkers workers(1);
  workers.post("first", [&] {
    while (!go_on) std::this_thread::sleep_for(1ms);
  });
  const auto job = [&](const std::string& name) {
    return [&, name] {
      const std::lock_guard lock(mutex);
      order.push_back(name);
    };
  };
  for (int i = 0; i < 5; ++i) workers.post("much", job("much"));
  for (int i = 0; i < 2; ++i) workers.post("little", job("little"));
  go_on = true;
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex);
    return order.size() == 7;
  }));
  EXPECT_EQ(order, (std::vector<std::string>{"little", "much", "little", "much", "much", "much", "much"}));
}

TEST(FairWorkers, NobodyHasAllThreads) {
  std::atomic<bool> go_on{false};
  std::atomic<int> running{0}, most{0}, done{0};
  FairWorkers workers(2);
  for (int i = 0; i < 6; ++i)
    workers.post("much", [&] {
      most = std::max<int>(most, ++running);
      while (!go_on) std::this_thread::sleep_for(1ms);
      --running;
      ++done;
    });
  std::atomic<bool> served{false};
  workers.post("little", [&] { served = true; });
  EXPECT_TRUE(eventually([&] { return served.load(); }));
  EXPECT_TRUE(eventually([&] { return running == 2; }));
  go_on = true;
  EXPECT_TRUE(eventually([&] { return done == 6; }));
  EXPECT_EQ(most, 2);
}

TEST(FairWorkers, StopDropsWhatWaitsAndEndsFromWithin) {
  std::atomic<int> done{0};
  auto workers = std::make_unique<FairWorkers>(1);
  std::atomic<bool> ended{false};
  workers->post("a", [&] {
    workers.reset();  // the last to hold it may be one of its jobs
    ended = true;
  });
  EXPECT_TRUE(eventually([&] { return ended.load(); }));
  FairWorkers other(1);
  other.stop();
  other.post("a", [&] { ++done; });
  EXPECT_EQ(done, 0);
}

}  // namespace
}  // namespace ingot::server
