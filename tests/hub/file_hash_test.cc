#include "hub/file_hash.h"

#include <gtest/gtest.h>

namespace ingot::hub {
namespace {

const std::string kSha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";  // of "abc"
const std::string kGit = "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f";                             // git hash-object

TEST(FileHash, KindFollowsTheExpectedHash) {
  for (const std::string& expected : {kSha256, kGit}) {
    FileHash hash(expected, 3);
    hash.update("x", 1);
    hash.restart();
    hash.update("a", 1);
    hash.update("bc", 2);
    EXPECT_EQ(hash.finish(), expected);
  }
}

TEST(FileHash, WhatIsAHash) {
  EXPECT_TRUE(is_content_hash(kSha256));
  EXPECT_TRUE(is_content_hash(kGit));
  EXPECT_FALSE(is_content_hash(kGit.substr(1)));
  EXPECT_FALSE(is_content_hash("../../../../../../../../../../../../../x"));
}

}  // namespace
}  // namespace ingot::hub
