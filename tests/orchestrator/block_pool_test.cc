#include "orchestrator/block_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace ingot {
namespace {

const BlockHasher kHasher;

BlockContent content_of(const std::vector<int32_t>& tokens) { return {kHasher.chain({}, tokens), 0, tokens}; }

std::vector<std::string> faults_of(const BlockPool& pool) {
  std::vector<std::string> faults;
  pool.check(faults);
  return faults;
}

TEST(BlockPool, GivesEveryBlockOnceAndNoMore) {
  BlockPool pool(3, 4);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), -1);
  pool.release(1);
  EXPECT_EQ(pool.free(), 1);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_TRUE(faults_of(pool).empty());
}

TEST(BlockPool, SharedBlockIsFreeOnlyAfterItsLastHolder) {
  BlockPool pool(2, 4);
  const int32_t block = pool.allocate();
  pool.share(block);
  pool.release(block);
  EXPECT_EQ(pool.free(), 1);
  pool.release(block);
  EXPECT_EQ(pool.free(), 2);
  EXPECT_TRUE(faults_of(pool).empty());
}

TEST(BlockPool, ContentSurvivesUntilTheBlockIsNeeded) {
  BlockPool pool(2, 2);
  const std::vector<int32_t> tokens = {7, 8}, others = {7, 9};
  const BlockContent content = content_of(tokens);
  const int32_t block = pool.allocate();
  pool.remember(block, content);
  pool.release(block);
  EXPECT_EQ(pool.find(content), block);
  EXPECT_EQ(pool.find({content.hash, 0, others}), -1) << "the tokens are compared, not only the hash";
  pool.share(block);
  EXPECT_EQ(pool.free(), 1);
  pool.release(block);
  pool.allocate();  // the other block: it was never used, so it is older
  EXPECT_EQ(pool.find(content), block);
  pool.allocate();
  EXPECT_EQ(pool.find(content), -1);
  EXPECT_TRUE(faults_of(pool).empty());
}

TEST(BlockPool, EvictsTheLeastRecentlyUsedAndTheEndOfASequenceFirst) {
  BlockPool pool(4, 1);
  std::vector<int32_t> first = {pool.allocate(), pool.allocate()};
  std::vector<int32_t> second = {pool.allocate(), pool.allocate()};
  pool.release_all(second);
  pool.release_all(first);
  EXPECT_EQ(pool.allocate(), 3);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 0);
}

TEST(BlockPool, SecondBlockWithTheSameContentStaysUnknown) {
  BlockPool pool(2, 1);
  const std::vector<int32_t> tokens = {5};
  const BlockContent content = content_of(tokens);
  const int32_t a = pool.allocate(), b = pool.allocate();
  EXPECT_TRUE(pool.remember(a, content));
  EXPECT_FALSE(pool.remember(b, content));
  EXPECT_EQ(pool.find(content), a);
  pool.release(b);
  EXPECT_EQ(pool.cached(), 0);
  pool.release(a);
  EXPECT_EQ(pool.cached(), 1);
  pool.forget_all();
  EXPECT_EQ(pool.cached(), 0);
  EXPECT_EQ(pool.find(content), -1);
  EXPECT_TRUE(faults_of(pool).empty());
}

TEST(BlockPool, TellsOfContentThatLeaves) {
  std::vector<std::pair<int32_t, int64_t>> left;  // block, position
  BlockPool pool(2, 1, [&](int32_t block, const BlockContent& content) {
    left.emplace_back(block, content.position);
    EXPECT_EQ(content.tokens[0], 5);
  });
  const std::vector<int32_t> tokens = {5};
  BlockContent content = content_of(tokens);
  content.position = 3;
  std::vector<int32_t> held = {pool.allocate(), pool.allocate()};
  pool.remember(held[1], content);
  pool.release_all(held);
  pool.allocate();
  pool.allocate();
  EXPECT_EQ(left, (std::vector<std::pair<int32_t, int64_t>>{{1, 3}})) << "once, and only what is known";
}

TEST(BlockPool, RandomUseKeepsItsBooks) {
  std::mt19937 random(7);
  BlockPool pool(13, 2);
  std::map<int32_t, int32_t> held;  // block → holders
  std::set<int32_t> told;           // their content, which happens once
  for (int i = 0; i < 20000; ++i) {
    const uint32_t what = random() % 4;
    if (what == 0) {
      const int32_t block = pool.allocate();
      ASSERT_EQ(block < 0, held.size() == 13);
      if (block >= 0) held[block] = 1;
      told.erase(block);
    } else if (!held.empty()) {
      auto it = held.begin();
      std::advance(it, random() % held.size());
      const std::vector<int32_t> tokens = {static_cast<int32_t>(random() % 20), 1};
      if (what == 1) {
        pool.share(it->first);
        ++it->second;
      } else if (what == 2) {
        pool.release(it->first);
        if (--it->second == 0) held.erase(it);
      } else if (told.insert(it->first).second) {
        pool.remember(it->first, content_of(tokens));
      }
    }
    ASSERT_EQ(pool.used(), static_cast<int64_t>(held.size()));
    if (i % 97 == 0) {
      ASSERT_TRUE(faults_of(pool).empty()) << faults_of(pool)[0];
    }
  }
}

}  // namespace
}  // namespace ingot
