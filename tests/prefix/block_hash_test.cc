#include "prefix/block_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot {
namespace {

using Tokens = std::vector<int32_t>;

TEST(BlockHash, DependsOnEveryTokenAndOnTheParent) {
  const BlockHasher hasher;
  const Tokens tokens = {1, 2, 3, 4};
  const BlockHash hash = hasher.chain({}, tokens);
  EXPECT_EQ(hash, hasher.chain({}, tokens));
  for (size_t i = 0; i < tokens.size(); ++i) {
    Tokens other = tokens;
    ++other[i];
    EXPECT_NE(hasher.chain({}, other), hash);
  }
  EXPECT_NE(hasher.chain({}, Tokens{4, 3, 2, 1}), hash);
  EXPECT_NE(hasher.chain(hash, tokens), hash);
  EXPECT_NE(hasher.chain({}, Tokens{0, 0}), hasher.chain({}, Tokens{0, 0, 0}));
}

TEST(BlockHash, IsTheSameOnlyUnderTheSameSecretAndIdentity) {
  const Digest secret = random_secret(), other = random_secret();
  const Tokens tokens = {1, 2};
  const BlockHash hash = BlockHasher(secret, "model a").chain({}, tokens);
  EXPECT_EQ(BlockHasher(secret, "model a").chain({}, tokens), hash);
  EXPECT_NE(BlockHasher(secret, "model b").chain({}, tokens), hash);
  EXPECT_NE(BlockHasher(other, "model a").chain({}, tokens), hash);
  EXPECT_NE(BlockHasher().chain({}, tokens), BlockHasher().chain({}, tokens)) << "each process has a key of its own";
}

TEST(BlockHash, ASaltBeginsAnotherChain) {
  const BlockHasher hasher;
  const BlockHash parent = hasher.chain({}, Tokens{1});
  const BlockHash a = hasher.salt("a"), b = hasher.salt("b");
  EXPECT_EQ(hasher.salted(parent, hasher.salt("")), parent) << "no salt changes nothing";
  EXPECT_NE(hasher.salted(parent, a), parent);
  EXPECT_NE(hasher.salted(parent, a), hasher.salted(parent, b));
  EXPECT_EQ(hasher.salted(parent, a), hasher.salted(parent, hasher.salt("a")));
}

// The known answers of RFC 4231 and FIPS 180: files must be found by another build's hashes.
TEST(Digest, IsWhatTheStandardsSay) {
  const std::string_view text = "what do ya want for nothing?", key = "Jefe";
  EXPECT_EQ(hex(hmac_sha256(std::as_bytes(std::span(key)), {std::as_bytes(std::span(text))})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string_view a = "a", bc = "bc";
  EXPECT_EQ(hex(sha256({std::as_bytes(std::span(a)), std::as_bytes(std::span(bc))})),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace ingot
