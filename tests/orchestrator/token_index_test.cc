#include "orchestrator/token_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ingot {
namespace {

// What find() should say, by looking everywhere.
TokenIndex::Matches longest(const std::vector<int32_t>& list, const std::vector<int32_t>& text) {
  TokenIndex::Matches best;
  for (int64_t end = static_cast<int64_t>(list.size()) - 1; end >= TokenIndex::kLeast; --end) {
    int32_t length = 0;
    while (length < TokenIndex::kMost && length < end && length < static_cast<int64_t>(text.size()) &&
           list[end - 1 - length] == text[text.size() - 1 - length])
      ++length;
    if (length < std::max(TokenIndex::kLeast, best.length)) continue;
    if (length > best.length) best = {.length = length};
    if (best.count < TokenIndex::kPlaces) best.ends[static_cast<size_t>(best.count++)] = end;
  }
  return best;
}

TEST(TokenIndex, FindsTheLongestAndNewest) {
  const std::vector<int32_t> text = {9, 1, 2, 3, 40, 1, 2, 3, 41, 5, 9, 1, 2, 3};
  TokenIndex index;
  EXPECT_TRUE(index.extend(text, 1000));
  const TokenIndex::Matches match = index.find(text, text);
  EXPECT_EQ(match.length, 4);
  EXPECT_EQ(match.count, 1);
  EXPECT_EQ(text[match.ends[0]], 40);
  const std::vector<int32_t> other = {7, 7, 1, 2, 3};
  EXPECT_EQ(index.find(text, other).length, 3);
  EXPECT_EQ(index.find(text, other).count, 2);
  EXPECT_EQ(text[index.find(text, other).ends[0]], 41) << "the newest of equals that has something behind it";
  EXPECT_EQ(index.find(text, std::vector<int32_t>{3, 2, 1}).length, 0);
  EXPECT_EQ(index.find(text, std::vector<int32_t>{1, 2}).length, 0);
}

TEST(TokenIndex, ComesInPieces) {
  std::mt19937 random(3);
  std::vector<int32_t> text(3000);
  for (int32_t& token : text) token = static_cast<int32_t>(random() % 40);
  TokenIndex whole, pieces;
  whole.extend(text, 1 << 20);
  while (!pieces.extend(text, 7)) {
  }
  int found = 0;
  for (int i = 0; i < 200; ++i) {
    std::vector<int32_t> end(text.begin() + i * 14, text.begin() + i * 14 + 6);
    end[0] = 1;
    const TokenIndex::Matches a = whole.find(text, end), b = pieces.find(text, end), best = longest(text, end);
    EXPECT_EQ(a.ends, b.ends);
    EXPECT_EQ(a.count, b.count);
    EXPECT_EQ(a.length, b.length);
    // Only the newest places are looked at, so a longer one may be missed, but never is one made up.
    EXPECT_LE(a.length, best.length);
    EXPECT_TRUE(a.length == 0 || std::equal(end.end() - a.length, end.end(), text.begin() + a.ends[0] - a.length));
    found += a.length == best.length;
  }
  EXPECT_GE(found, 190);
}

// A few tokens stand in many places; those that go on alike further back are found all the same, as in a suffix tree.
TEST(TokenIndex, FindsTheLongestOfMany) {
  std::mt19937 random(5);
  std::vector<int32_t> text, passage(40);
  for (int32_t& token : passage) token = static_cast<int32_t>(100 + random() % 50);
  const auto common = [&](int times) {
    for (int i = 0; i < times; ++i) text.insert(text.end(), {1, 2, 3, static_cast<int32_t>(4 + random() % 20)});
  };
  common(20);
  text.insert(text.end(), passage.begin(), passage.end());
  text.insert(text.end(), {1, 2, 3, 77});
  common(200);
  text.insert(text.end(), passage.end() - 9, passage.end());
  text.insert(text.end(), {1, 2, 3});
  TokenIndex index;
  index.extend(text, 1 << 20);
  const TokenIndex::Matches match = index.find(text, text);
  EXPECT_EQ(match.length, 12);
  EXPECT_EQ(text[match.ends[0]], 77);
}

}  // namespace
}  // namespace ingot
