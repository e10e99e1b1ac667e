#include "core/fair_share.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

TEST(FairShare, OneAloneHasEverything) {
  FairShare share(100);
  EXPECT_TRUE(share.take("a", 60));
  EXPECT_TRUE(share.take("a", 40));
  EXPECT_FALSE(share.take("a", 1));
  EXPECT_FALSE(share.take("a", UINT64_MAX));
  share.give("a", 40);
  EXPECT_TRUE(share.take("a", 40));
  share.give("a", 100);
  EXPECT_EQ(share.used(), 0u);
}

TEST(FairShare, NobodyCanFillItForTheOthers) {
  FairShare share(100);
  EXPECT_TRUE(share.take("greedy", 100));
  EXPECT_TRUE(share.take("b", 12)) << "from the reserve";
  EXPECT_FALSE(share.take("c", 1)) << "which ends too";
  EXPECT_FALSE(share.take("greedy", 1));
  share.give("greedy", 30);  // 82 are taken
  EXPECT_FALSE(share.take("greedy", 1)) << "beyond its part, while the others are there";
  EXPECT_TRUE(share.take("c", 30));
  share.give("greedy", 40);  // 72 are taken
  EXPECT_TRUE(share.take("greedy", 1)) << "within its part again";
  EXPECT_FALSE(share.take("greedy", 10)) << "beyond it, and less than a quarter is free";
  share.give("b", 12);
  share.give("c", 30);
  EXPECT_TRUE(share.take("greedy", 69));
}

TEST(FairShare, ManyFindRoom) {
  FairShare share(64);
  EXPECT_TRUE(share.take("greedy", 40));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(share.take("client " + std::to_string(i), 2)) << i;
  EXPECT_EQ(share.used(), 56u);
}

}  // namespace
}  // namespace ingot
