#include "server/log_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "eventually.h"

namespace ingot::server {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends), 0); }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) close(end);
  }
  std::string read_all() {  // once the writing end is closed
    close(std::exchange(ends[1], -1));
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(ends[0], buffer, sizeof buffer)) > 0;) text.append(buffer, size);
    return text;
  }
  int ends[2];
};

std::string tell(uint64_t dropped) { return fmt::format("dropped {}", dropped); }

TEST(LogWriter, WritesLinesInOrder) {
  Pipe pipe;
  std::string expected;
  {
    LogWriter log(pipe.ends[1], tell);
    for (int i = 0; i < 1000; ++i) {
      log.write(fmt::format("line {}", i));
      expected += fmt::format("line {}\n", i);
    }
    EXPECT_EQ(log.dropped(), 0u);
  }
  EXPECT_EQ(pipe.read_all(), expected);
}

TEST(LogWriter, NeverWaitsForItsReader) {
  Pipe pipe;
  const auto start = std::chrono::steady_clock::now();
  {
    LogWriter log(pipe.ends[1], tell, 256 << 10);
    for (int i = 0; i < 20'000; ++i) log.write(std::string(100, 'x'));
    EXPECT_GT(log.dropped(), 10'000u);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "the end too";
}

TEST(LogWriter, SaysHowManyWereDroppedAndGoesOn) {
  Pipe pipe;
  std::mutex mutex;
  std::string text;
  std::thread reader;
  {
    LogWriter log(pipe.ends[1], tell, 4 << 10);
    for (int i = 0; i < 10'000; ++i) log.write(std::string(99, 'x'));
    ASSERT_GT(log.dropped(), 0u);
    reader = std::thread([&] {
      char buffer[4096];
      for (ssize_t size = 0; (size = read(pipe.ends[0], buffer, sizeof buffer)) > 0;) {
        const std::lock_guard lock(mutex);
        text.append(buffer, size);
      }
    });
    for (uint64_t before = 0; before != log.dropped();) {  // until there is room again
      before = log.dropped();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      log.write("the last");
    }
    EXPECT_TRUE(test::eventually([&] {
      const std::lock_guard lock(mutex);
      return text.find("the last\n") != std::string::npos;
    }));
  }
  close(std::exchange(pipe.ends[1], -1));
  reader.join();
  EXPECT_NE(text.find("\ndropped "), std::string::npos);
}

TEST(LogWriter, OutlivesItsReader) {
  Pipe pipe;
  signal(SIGPIPE, SIG_IGN);
  close(std::exchange(pipe.ends[0], -1));
  LogWriter log(pipe.ends[1], tell);
  for (int i = 0; i < 100; ++i) log.write("nobody");
}

}  // namespace
}  // namespace ingot::server
