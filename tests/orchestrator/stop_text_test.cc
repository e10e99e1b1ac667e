#include "orchestrator/stop_text.h"

#include <gtest/gtest.h>

#include <random>

#include "cpu_time.h"

namespace ingot {
namespace {

// Feeds `text` in pieces of `size` bytes; returns what came out, "|" marking a stop.
std::string feed(const std::vector<std::string>& stops, const std::string& text, size_t size, bool include = false) {
  StopText stop(stops, include);
  std::string out;
  for (size_t at = 0; at < text.size(); at += size)
    if (stop.push(text.substr(at, size), out)) return out + "|";
  stop.finish(out);
  return out;
}

TEST(StopText, FindsAStopAcrossPieces) {
  for (size_t size = 1; size < 12; ++size) {
    EXPECT_EQ(feed({"STOP"}, "abc STOP def", size), "abc |");
    EXPECT_EQ(feed({"STOP"}, "abc STOP def", size, true), "abc STOP|");
    EXPECT_EQ(feed({"aab"}, "aaaab", size), "aa|");
    EXPECT_EQ(feed({"\n\n", "User:"}, "one\ntwo\nUser: x", size), "one\ntwo\n|");
    EXPECT_EQ(feed({"xyz"}, "xy", size), "xy") << "held back text comes out at the end";
    EXPECT_EQ(feed({}, "plain", size), "plain");
    EXPECT_EQ(feed({""}, "plain", size), "plain") << "an empty stop string stops nothing";
  }
}

TEST(StopText, HoldsBackOnlyWhatMayStillMatch) {
  StopText stop({"</answer>"}, false);
  std::string out;
  EXPECT_FALSE(stop.push("text </ans", out));
  EXPECT_EQ(out, "text ");
  EXPECT_FALSE(stop.push("x", out));
  EXPECT_EQ(out, "text </ansx");
}

TEST(StopText, EarliestStopWins) {
  EXPECT_EQ(feed({"later", "b"}, "a b later", 20), "a |");
  StopText stop({"ab", "abc"}, false);
  std::string out;
  EXPECT_TRUE(stop.push("xabc", out));
  EXPECT_EQ(stop.found(), "abc") << "at one place the longest";
}

TEST(StopText, EqualsASearchOfTheWholeText) {
  std::mt19937 random(3);
  for (int i = 0; i < 5000; ++i) {
    std::string text, needle;
    for (uint32_t n = random() % 30; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    for (uint32_t n = 1 + random() % 4; n > 0; --n) needle += static_cast<char>('a' + random() % 2);
    const size_t at = text.find(needle);
    const std::string expected = at == std::string::npos ? text : text.substr(0, at) + "|";
    ASSERT_EQ(feed({needle}, text, 1 + random() % 5), expected) << text << " / " << needle;
  }
}

// Many stop strings that all but match, which a search from every position would look through again and again.
TEST(StopText, TakesTimeLinearInTheText) {
  std::vector<std::string> texts;
  for (int i = 0; i < 64; ++i) texts.push_back(std::string(1000, 'a') + std::to_string(i));
  const StopStrings stops(texts);
  StopText stop(stops, false), other(stops, false);
  std::string out;
  const double start = test::thread_cpu_s();
  for (int i = 0; i < 20'000; ++i) ASSERT_FALSE(stop.push("aaaa", out));
  EXPECT_LT(test::thread_cpu_s() - start, 10) << "a naive search takes minutes";
  EXPECT_EQ(out.size(), 80'000u - 1000);
  EXPECT_TRUE(stop.push("63", out));
  EXPECT_FALSE(other.push("63", out)) << "the table is shared, the state is not";
  EXPECT_LT(stops.bytes(), 64 * 6000u);
}

TEST(StopText, PassedTextCannotStop) {
  StopText stop({"ab"}, false);
  std::string out;
  stop.pass("ab a", out);
  EXPECT_EQ(out, "ab a");
  EXPECT_FALSE(stop.push("b", out));
  EXPECT_TRUE(stop.push("ab", out));
}

}  // namespace
}  // namespace ingot
