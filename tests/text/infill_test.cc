#include "text/infill.h"

#include <gtest/gtest.h>

#include "ingot/tokenizer.h"
#include "text/byte_alphabet.h"

namespace ingot {
namespace {

using Ids = std::vector<int32_t>;

// Bytes, then these special tokens from 256 on.
Tokenizer with_marks(std::vector<std::string> marks, InfillMarks named = {}) {
  TokenizerData data;
  data.source = "marks";
  for (int byte = 0; byte < 256; ++byte)
    data.tokens.push_back(ByteAlphabet::get().encode(std::string(1, static_cast<char>(byte))));
  for (std::string& mark : marks) {
    data.added.push_back({.id = static_cast<int32_t>(data.tokens.size()), .content = mark, .special = true});
    data.tokens.push_back(std::move(mark));
  }
  data.byte_level = true;
  data.pre_tokenizer = {{.kind = PreTokenizerStep::Kind::byte_level}};
  data.decoder = {{.kind = DecoderStep::Kind::byte_level}};
  data.infill = named;
  return Tokenizer(std::move(data));
}

Ids infill(const Tokenizer& tokenizer) {
  const auto format = InfillFormat::of(tokenizer);
  return format ? format->prompt(tokenizer, "a", "c", {}, nullptr) : Ids{};
}

TEST(Infill, TheFamiliesOrders) {
  EXPECT_EQ(infill(with_marks({"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"})), (Ids{256, 'a', 257, 'c', 258}));
  EXPECT_EQ(infill(with_marks({"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"})), (Ids{257, 'a', 256, 'c', 258}));
  EXPECT_EQ(infill(with_marks({"▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>"})), (Ids{256, 'a', 257, 'c', 258}));
  EXPECT_EQ(infill(with_marks({"[PREFIX]", "[SUFFIX]"})), (Ids{257, 'c', 256, 'a'}));
  EXPECT_EQ(infill(with_marks({"<fim_prefix>", "<fim_suffix>"})), Ids{}) << "without a middle there is no place";
  EXPECT_EQ(infill(with_marks({"<|endoftext|>"})), Ids{});
}

TEST(Infill, WhatTheFileNamesIsTaken) {
  const Tokenizer tokenizer = with_marks({"<x>", "<y>", "<z>"}, {.prefix = 257, .suffix = 256, .middle = 258});
  EXPECT_EQ(infill(tokenizer), (Ids{257, 'a', 256, 'c', 258}));
}

TEST(Infill, EndsAreMarksAndEndsOfDocuments) {
  const Tokenizer tokenizer =
      with_marks({"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|endoftext|>", "<fim_pad>"});
  EXPECT_EQ(InfillFormat::of(tokenizer)->ends(), (Ids{256, 257, 258, 259, 260}));
}

// A model that knows no files is shown them as text.
TEST(Infill, OtherFilesWithoutMarks) {
  const Tokenizer tokenizer = with_marks({"<fim_prefix>", "<fim_suffix>", "<fim_middle>"});
  const InfillFormat::File others[] = {{"f", "t"}};
  const Ids ids = InfillFormat::of(tokenizer)->prompt(tokenizer, "a", "c", others, nullptr);
  const Ids text(ids.begin(), std::find(ids.begin(), ids.end(), 256));
  EXPECT_EQ(tokenizer.decode(text), "--- f ---\nt\n");
}

}  // namespace
}  // namespace ingot
