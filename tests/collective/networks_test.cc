// Which addresses of a machine its ranks listen on.
#include "collective/networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(Networks, AreTakenByNameOrByAddress) {
  EXPECT_THAT(own_addresses("127.0.0.0/8"), ElementsAre("127.0.0.1"));
  EXPECT_THAT(own_addresses("127.0.0.1"), ElementsAre("127.0.0.1"));
  EXPECT_THAT(own_addresses("0.0.0.0/32,127.0.0.0/30"), ElementsAre("127.0.0.1"));
  EXPECT_THAT(own_addresses("0.0.0.0/32"), IsEmpty());
  EXPECT_THAT(own_addresses("no such,127.0.0.0/99,127.0.0.2/32"), IsEmpty());
}

TEST(Networks, TheLoopbackOneIsForThoseWhoNameIt) {
  for (const std::string& address : own_addresses("")) EXPECT_THAT(address, Not(::testing::StartsWith("127.")));
}

}  // namespace
}  // namespace ingot
