// Tokenizers of Hugging Face folders written as GGUF metadata and read back: the same ids for every text.
#include "text/tokenizer_gguf_write.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "formats/test_files.h"
#include "text/fixtures.h"
#include "text/tokenizer_load.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

const char* const kWrittenTexts[] = {
    "",
    "Hello, world! It's 12345 o'clock; don't.",
    "  two leading, three inside   and two trailing  ",
    "line\nline\r\n\n\n\tTab",
    "<s>[INST] <|im_start|>user <|eot_id|> </s>",
    "na\xC3\xAFve caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E \xF0\x9F\x98\x80 \xE2\x82\xAC",
    "e\xCC\x81 combining, \xC2\xA0 no-break",
    "if (x[i] != 0x1F) { return a->b(c) ?? d; } // code",
    "\xFF\xFE broken bytes \xC3"};

std::string write(const TokenizerData& data, int64_t vocab) {
  GgufValues values;
  put_gguf_tokenizer(values, data, vocab);
  return gguf_bytes(values, {});
}

class WrittenTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(WrittenTokenizer, ReadsBackTheSame) {
  const TokenizerData data = read_folder_tokenizer(kTokenizers / GetParam());
  const auto vocab = static_cast<int64_t>(data.tokens.size()) + 3;
  const std::string bytes = write(data, vocab);
  const std::shared_ptr<GgufFile> file = GgufFile::open_bytes(as_bytes(bytes));
  EXPECT_EQ(file->get_strings("tokenizer.ggml.tokens")->size(), static_cast<size_t>(vocab));
  const std::shared_ptr<const Tokenizer> original = load_tokenizer(kTokenizers / GetParam()),
                                         back = load_tokenizer(*file);
  for (const char* text : kWrittenTexts)
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = special};
      EXPECT_EQ(back->encode(text, options), original->encode(text, options)) << text;
    }
}

INSTANTIATE_TEST_SUITE_P(Folders, WrittenTokenizer,
                         ::testing::Values("gpt2", "llama2", "llama3", "qwen2", "smollm", "tekken", "tekken-hf",
                                           "gemma"));

// tokenizer.json puts no mark before text that starts with a space or follows a special token. SentencePiece itself
// does, and so does a GGUF file.
TEST(WrittenTokenizerMarks, ComeBeforeEveryText) {
  const TokenizerData data = read_folder_tokenizer(kTokenizers / "mistral");
  const std::string bytes = write(data, static_cast<int64_t>(data.tokens.size()));
  const std::shared_ptr<GgufFile> file = GgufFile::open_bytes(as_bytes(bytes));
  const std::shared_ptr<const Tokenizer> original = load_tokenizer(kTokenizers / "mistral"),
                                         back = load_tokenizer(*file);
  for (const std::string_view text : kWrittenTexts) {
    if (text.starts_with(" ")) continue;
    EXPECT_EQ(back->encode(text, {.add_special = true, .parse_special = false}),
              original->encode(text, {.add_special = true, .parse_special = false}))
        << text;
  }
}

TEST(WrittenTokenizerNone, CountsAsNoTokenizer) {
  GgufValues values;
  values.put_text("tokenizer.ggml.model", "none");
  const std::string bytes = gguf_bytes(values, {});
  expect_error(ErrorKind::declined, "the file has no tokenizer",
               [&] { load_tokenizer(*GgufFile::open_bytes(as_bytes(bytes))); });
}

TEST(WrittenTokenizerDeclines, WhatGgufCannotSay) {
  for (const char* name : {"deepseek", "o200k", "roberta", "behaviours", "fused", "unknowns"}) {
    const TokenizerData data = read_folder_tokenizer(kTokenizers / name);
    expect_error(ErrorKind::declined, "GGUF cannot say",
                 [&] { write(data, static_cast<int64_t>(data.tokens.size())); });
  }
  const TokenizerData data = read_folder_tokenizer(kTokenizers / "gpt2");
  expect_error(ErrorKind::bad_file, "the embedding only 7 rows", [&] { write(data, 7); });
}

}  // namespace
}  // namespace ingot
