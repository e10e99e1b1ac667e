#include "prefix/host_tier.h"

#include <gtest/gtest.h>

#include <random>

#include "prefix/rig.h"

namespace ingot::test {
namespace {

void expect_no_faults(const HostTier& tier) {
  std::vector<std::string> faults;
  tier.check(faults);
  for (const std::string& fault : faults) ADD_FAILURE() << fault;
}

// Fills a block and lets go of it.
int32_t put(HostTier& tier, uint32_t number, bool written = false) {
  const int32_t block = tier.reserve(TestBlock(number).content());
  if (block < 0) return -1;
  tier.keep(block, written);
  tier.release(block);
  return block;
}

bool has(HostTier& tier, uint32_t number) {
  const int32_t block = tier.hold(TestBlock(number).content());
  if (block >= 0) tier.release(block);
  return block >= 0;
}

TEST(HostTier, GivesUpTheLeastRecentlyUsed) {
  HostTier tier(3, 4, false);
  for (const uint32_t i : {1, 2, 3}) EXPECT_GE(put(tier, i), 0);
  EXPECT_TRUE(has(tier, 1));
  EXPECT_EQ(put(tier, 2), -1) << "it is there: used, not kept twice";
  EXPECT_GE(put(tier, 4), 0);
  EXPECT_FALSE(has(tier, 3));
  EXPECT_TRUE(has(tier, 1) && has(tier, 2) && has(tier, 4));
  EXPECT_EQ(tier.lost(), 0u) << "nobody was to write them";
  TestBlock other(1);
  other.tokens[0] = 99;
  EXPECT_EQ(tier.hold(other.content()), -1) << "the tokens are compared, not only the hash";
  expect_no_faults(tier);
}

TEST(HostTier, NobodyFindsWhatIsBeingFilledOrWasDropped) {
  HostTier tier(2, 4, false);
  const int32_t block = tier.reserve(TestBlock(1).content());
  EXPECT_FALSE(has(tier, 1));
  EXPECT_EQ(tier.reserve(TestBlock(1).content()), -1) << "somebody is at it";
  expect_no_faults(tier);
  tier.drop(block);
  EXPECT_FALSE(has(tier, 1));
  EXPECT_GE(put(tier, 1), 0);
  EXPECT_TRUE(has(tier, 1));
  expect_no_faults(tier);
}

TEST(HostTier, WhatIsHeldStays) {
  HostTier tier(2, 4, false);
  put(tier, 1);
  const int32_t held = tier.hold(TestBlock(1).content());
  for (uint32_t i = 2; i < 6; ++i) EXPECT_GE(put(tier, i), 0);
  EXPECT_TRUE(has(tier, 1));
  const int32_t other = tier.reserve(TestBlock(9).content());
  EXPECT_EQ(tier.reserve(TestBlock(10).content()), -1) << "both are held";
  tier.drop(other);
  tier.release(held);
  expect_no_faults(tier);
}

TEST(HostTier, WhatIsInNoFileMakesRoomLast) {
  HostTier tier(3, 4, true);
  put(tier, 1, false);
  put(tier, 2, true);
  put(tier, 3, false);
  EXPECT_EQ(tier.unwritten(), 2u);
  put(tier, 4, true);
  EXPECT_TRUE(has(tier, 1)) << "older, but nowhere else";
  EXPECT_FALSE(has(tier, 2));
  put(tier, 5);
  EXPECT_FALSE(has(tier, 4));
  EXPECT_FALSE(tier.has_room());
  EXPECT_EQ(tier.reserve(TestBlock(6).content(), true), -1);
  EXPECT_EQ(tier.lost(), 0u);
  put(tier, 6);
  EXPECT_EQ(tier.lost(), 1u);
  // The oldest is written first; what was lost is not.
  const std::optional<HostTier::Unwritten> first = tier.take_unwritten();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->hash, TestBlock(1).hash == first->hash ? TestBlock(1).hash : TestBlock(3).hash);
  EXPECT_EQ(first->tokens[1], 2);
  tier.set_written(first->block);
  tier.release(first->block);
  EXPECT_TRUE(tier.has_room());
  tier.stop_writing();
  EXPECT_EQ(tier.unwritten(), 0u);
  EXPECT_FALSE(tier.take_unwritten());
  expect_no_faults(tier);
}

TEST(HostTier, RandomUseKeepsItsBooks) {
  std::mt19937 random(3);
  HostTier tier(7, 4, true);
  std::vector<int32_t> filling, held;
  for (int i = 0; i < 20000; ++i) {
    const TestBlock block(random() % 20, 0);
    switch (random() % 6) {
      case 0:
        if (filling.size() < 3)
          if (const int32_t b = tier.reserve(block.content(), random() % 2 == 0); b >= 0) filling.push_back(b);
        break;
      case 1:
        if (filling.empty()) break;
        tier.keep(filling.back(), random() % 2 == 0);
        tier.release(filling.back());
        filling.pop_back();
        break;
      case 2:
        if (filling.empty()) break;
        tier.drop(filling.back());
        filling.pop_back();
        break;
      case 3:
        if (held.size() < 3)
          if (const int32_t b = tier.hold(block.content()); b >= 0) held.push_back(b);
        break;
      case 4:
        if (held.empty()) break;
        tier.release(held.back());
        held.pop_back();
        break;
      default:
        if (const auto unwritten = tier.take_unwritten()) {
          if (random() % 4 > 0) tier.set_written(unwritten->block);
          tier.release(unwritten->block);
        }
    }
    if (i % 97 == 0) expect_no_faults(tier);
  }
}

}  // namespace
}  // namespace ingot::test
