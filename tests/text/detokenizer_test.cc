#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "text/byte_alphabet.h"
#include "text/tokenizer_data.h"
#include "text/unicode.h"

namespace ingot {
namespace {

AddedToken special(int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  token.special = true;
  return token;
}

// 256 byte tokens, then <s> (256), " a" (257), the first two bytes of U+4F60 (258), its last one and "!" (259).
TokenizerData byte_level_data() {
  TokenizerData data;
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  for (int b = 0; b < 256; ++b) data.tokens.push_back(alphabet.encode(std::string(1, static_cast<char>(b))));
  data.tokens.insert(data.tokens.end(),
                     {"<s>", alphabet.encode(" a"), alphabet.encode("\xE4\xBD"), alphabet.encode("\xA0!")});
  data.byte_level = true;
  data.decoder = {{DecoderStep::Kind::byte_level}};
  data.added = {special(256, "<s>")};
  return data;
}

// 256 byte-fallback tokens, then <s> (256), U+2581 "a" (257), "b" (258), U+2581 (259).
TokenizerData sentencepiece_data() {
  using Kind = DecoderStep::Kind;
  TokenizerData data;
  for (int b = 0; b < 256; ++b) data.tokens.push_back(fmt::format("<0x{:02X}>", b));
  data.tokens.insert(data.tokens.end(), {"<s>", "\u2581a", "b", "\u2581"});
  data.byte_fallback = true;
  data.decoder = {
      {Kind::replace_text, "\u2581", " "}, {Kind::byte_fallback}, {Kind::fuse}, {Kind::strip, "", " ", 1, 0}};
  data.added = {special(256, "<s>")};
  return data;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special = true) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::vector<std::string> out;
  for (int32_t id : ids) out.push_back(detokenizer.push(id));
  out.push_back(detokenizer.finish());
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Detokenizer, ByteLevelWaitsForWholeCharacters) {
  const Tokenizer tokenizer(byte_level_data());
  EXPECT_EQ(pieces(tokenizer, {257, 258, 259, 0xF0, 0x9F, 0x98, 0x80}),
            (Pieces{" a", "", "\u4f60!", "", "", "", "\U0001f600", ""}));
}

TEST(Detokenizer, ByteLevelReplacesBrokenBytes) {
  const Tokenizer tokenizer(byte_level_data());
  EXPECT_EQ(pieces(tokenizer, {0xE4, 'x'}), (Pieces{"", "\ufffdx", ""}));
  EXPECT_EQ(pieces(tokenizer, {0xE4, 0xBD}), (Pieces{"", "", "\ufffd"}));
  EXPECT_EQ(pieces(tokenizer, {258, 258}), (Pieces{"", "\ufffd", "\ufffd"}));
  EXPECT_EQ(pieces(tokenizer, {0x80}), (Pieces{"\ufffd", ""}));
}

TEST(Detokenizer, SkipsSpecialAndUnknownIds) {
  const Tokenizer tokenizer(byte_level_data());
  EXPECT_EQ(pieces(tokenizer, {256, 258, 256, 259, 12345, -7}), (Pieces{"", "", "", "\u4f60!", "", "", ""}));
  EXPECT_EQ(pieces(tokenizer, {256, 'x'}, false), (Pieces{"<s>", "x", ""}));
}

TEST(Detokenizer, SentencePieceDropsOneLeadingSpace) {
  const Tokenizer tokenizer(sentencepiece_data());
  EXPECT_EQ(pieces(tokenizer, {256, 257, 257, 258}), (Pieces{"", "a", " a", "b", ""}));
  EXPECT_EQ(pieces(tokenizer, {259, 257}), (Pieces{"", " a", ""}));
  EXPECT_EQ(pieces(tokenizer, {258, 257}), (Pieces{"b", " a", ""}));
  EXPECT_EQ(pieces(tokenizer, {256, 257}, false), (Pieces{"<s>", " a", ""}));
  EXPECT_EQ(pieces(tokenizer, {0x20, 257}), (Pieces{"", " a", ""}));
}

TEST(Detokenizer, ByteFallbackJoinsBytesOfNeighbours) {
  const Tokenizer tokenizer(sentencepiece_data());
  EXPECT_EQ(pieces(tokenizer, {0xE4, 0xBD, 0xA0, 258}), (Pieces{"", "", "\u4f60", "b", ""}));
  // A run that is broken off: one U+FFFD for each byte, and the whole characters before it stay.
  EXPECT_EQ(pieces(tokenizer, {0xC3, 0xA9, 0xE4, 0xBD, 258}), (Pieces{"", "\u00e9", "", "", "\ufffd\ufffdb", ""}));
  EXPECT_EQ(pieces(tokenizer, {0xE4, 0xBD}), (Pieces{"", "", "\ufffd\ufffd"}));
}

TEST(Detokenizer, IsAsNewAfterFinish) {
  const Tokenizer tokenizer(sentencepiece_data());
  Detokenizer detokenizer(tokenizer);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(detokenizer.push(257), "a");
    EXPECT_EQ(detokenizer.push(0xE4), "");
    EXPECT_EQ(detokenizer.finish(), "\ufffd");
  }
}

TEST(Detokenizer, StreamEqualsDecodeForRandomIds) {
  for (const TokenizerData& data : {byte_level_data(), sentencepiece_data()}) {
    const Tokenizer tokenizer(data);
    std::mt19937 rng(9);
    for (int round = 0; round < 3000; ++round) {
      std::vector<int32_t> ids;
      // Mostly bytes that make characters, so that many are whole and many are not.
      const int32_t likely[] = {0xE4, 0xBD, 0xA0, 0xC3, 0xA9, 0xF0, 0x9F, 0x98, 0x80, 'x', 256, 257, 258, 259};
      const size_t length = rng() % 12;
      for (size_t i = 0; i < length; ++i) ids.push_back(likely[rng() % std::size(likely)]);
      std::string stream;
      for (const std::string& part : pieces(tokenizer, ids, round % 2)) {
        ASSERT_TRUE(is_valid_utf8(part));
        stream += part;
      }
      ASSERT_EQ(stream, tokenizer.decode(ids, round % 2));
    }
  }
}

TEST(Detokenizer, WithoutDecoderTokensAreJoinedBySpaces) {
  TokenizerData data;
  data.tokens = {"a", "b"};
  data.has_decoder = false;
  EXPECT_EQ(Tokenizer(data).decode(std::vector<int32_t>{0, 1, 0}), "a b a");
}

TEST(Detokenizer, DecoderChainsThatCannotStreamAreDeclined) {
  using Kind = DecoderStep::Kind;
  const std::vector<DecoderStep> chains[] = {{{Kind::byte_level}, {Kind::byte_fallback}},
                                             {{Kind::fuse}, {Kind::byte_level}},
                                             {{Kind::strip, "", " ", 1, 0}},
                                             {{Kind::fuse}, {Kind::strip, "", " ", 0, 1}},
                                             {{Kind::byte_fallback}, {Kind::replace_text, "a", "b"}}};
  for (const auto& chain : chains) {
    TokenizerData data;
    data.tokens = {"a"};
    data.decoder = chain;
    try {
      Tokenizer tokenizer(data);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::declined);
    }
  }
}

}  // namespace
}  // namespace ingot
