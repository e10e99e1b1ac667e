// Malformed and malicious tokenizer files: one clear error that names the file and the key, never a crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "formats/json.h"
#include "ingot/tokenizer.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json good_tokenizer() {
  return json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": false},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
  })");
}

std::string error_of(const std::string& text, ErrorKind kind = ErrorKind::bad_file) {
  try {
    Tokenizer tokenizer(read_hf_tokenizer(text, "t/tokenizer.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("t/tokenizer.json"));
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

// The good file with `value` at `pointer`.
std::string error_with(const char* pointer, const char* value, ErrorKind kind = ErrorKind::bad_file) {
  json file = good_tokenizer();
  file[json::json_pointer(pointer)] = json::parse(value);
  return error_of(file.dump(), kind);
}

TEST(HostileTokenizer, TheGoodOneIsGood) {
  const Tokenizer tokenizer(read_hf_tokenizer(good_tokenizer().dump(), "t"));
  EXPECT_EQ(tokenizer.encode("ab a<s>"), (std::vector<int32_t>{3, 2, 0, 3}));
}

// An added token says only what is unusual about it: by itself it takes no space beside it.
TEST(HostileTokenizer, AddedTokensAreAlone) {
  json file = good_tokenizer();
  file["added_tokens"] = json::parse(R"([{"id": 3, "content": "<s>", "special": true}])");
  file["model"]["vocab"][" "] = 4;
  const Tokenizer tokenizer(read_hf_tokenizer(file.dump(), "t"));
  EXPECT_EQ(tokenizer.encode("a <s> a"), (std::vector<int32_t>{3, 0, 4, 3, 4, 0}));
}

TEST(HostileTokenizer, Ids) {
  EXPECT_THAT(error_with("/model/vocab/a", "-1"), HasSubstr("model.vocab[\"a\"] is -1"));
  EXPECT_THAT(error_with("/model/vocab/a", "2147483648"), HasSubstr("model.vocab[\"a\"] is 2147483648"));
  EXPECT_THAT(error_with("/model/vocab/a", "18446744073709551615"), HasSubstr("model.vocab[\"a\"]"));
  EXPECT_THAT(error_with("/model/vocab/a", "1e30"), HasSubstr("model.vocab[\"a\"] must be an integer"));
  EXPECT_THAT(error_with("/model/vocab/a", "1000000"), HasSubstr("ids of this vocabulary"));
  EXPECT_THAT(error_with("/model/vocab/a", "1"), HasSubstr("has id 1, which is already that of"));
  EXPECT_THAT(error_with("/model/vocab/a", "\"0\""), HasSubstr("model.vocab[\"a\"] must be an integer, got string"));
  EXPECT_THAT(error_with("/added_tokens/0/id", "0"), HasSubstr("added_tokens[0].id has id 0"));
  EXPECT_THAT(error_with("/added_tokens/0/id", "99999"), HasSubstr("added_tokens[0].id is 99999"));
  EXPECT_THAT(error_with("/post_processor/special_tokens/<s>/ids", "[77]"), HasSubstr("ids is 77"));
}

TEST(HostileTokenizer, Merges) {
  EXPECT_THAT(error_with("/model/merges", "[\"a c\"]"), HasSubstr("model.merges[0] names \"c\""));
  EXPECT_THAT(error_with("/model/merges", "[\"a b\", \"b a\"]"), HasSubstr("model.merges[1] names \"ba\""));
  EXPECT_THAT(error_with("/model/merges", "[\"a b\", \"ab\"]"), HasSubstr("model.merges[1] \"ab\" is not two tokens"));
  EXPECT_THAT(error_with("/model/merges", "[\"a b c\"]"), HasSubstr("is not two tokens"));
  EXPECT_THAT(error_with("/model/merges", "[[\"a\"]]"), HasSubstr("model.merges[0] must be two tokens"));
  EXPECT_THAT(error_with("/model/merges", "[[\"a\", 1]]"), HasSubstr("model.merges[0] must be two tokens"));
  EXPECT_THAT(error_with("/model/merges", "{}"), HasSubstr("model.merges must be a list"));
  EXPECT_THAT(error_with("/model/merges", "[\"a <s>\"]"), HasSubstr("not in model.vocab"));
}

TEST(HostileTokenizer, WrongTypes) {
  EXPECT_THAT(error_with("/model", "[]"), HasSubstr("model must be an object"));
  EXPECT_THAT(error_with("/model/vocab", "[]"), HasSubstr("model.vocab must be an object"));
  EXPECT_THAT(error_with("/model/vocab", "{}"), HasSubstr("model.merges[0]"));
  EXPECT_THAT(error_with("/model/unk_token", "\"zzz\""), HasSubstr("model.unk_token \"zzz\" is not in the vocabulary"));
  EXPECT_THAT(error_with("/model/unk_token", "5"), HasSubstr("model.unk_token"));
  EXPECT_THAT(error_with("/added_tokens", "{}"), HasSubstr("added_tokens must be a list"));
  EXPECT_THAT(error_with("/added_tokens/0", "3"), HasSubstr("added_tokens[0]"));
  EXPECT_THAT(error_with("/added_tokens/0/special", "1"), HasSubstr("added_tokens[0].special"));
  EXPECT_THAT(error_with("/normalizer/normalizers", "{}"), HasSubstr("normalizer.normalizers must be a list"));
  EXPECT_THAT(error_with("/normalizer/normalizers/0", "null"), HasSubstr("normalizer.normalizers[0]"));
  EXPECT_THAT(error_with("/pre_tokenizer/pattern", "\" \""), HasSubstr("pre_tokenizer.pattern"));
  EXPECT_THAT(error_with("/pre_tokenizer/behavior", "\"X\""), HasSubstr("pre_tokenizer.behavior"));
  EXPECT_THAT(error_with("/pre_tokenizer/pattern", "{\"Regex\": \"(\"}"), HasSubstr("split pattern"));
  EXPECT_THAT(error_with("/post_processor/single", "5"), HasSubstr("post_processor.single"));
  EXPECT_THAT(error_with("/post_processor/special_tokens", "{}"),
              HasSubstr("post_processor.special_tokens has no \"<s>\""));
  EXPECT_THAT(error_with("/decoder", R"({"type": "Strip", "content": "ab", "start": 1, "stop": 0})"),
              HasSubstr("decoder.content"));
  EXPECT_THAT(error_with("/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})"),
              HasSubstr("decoder.start"));
}

TEST(HostileTokenizer, WhatIsNotSupportedIsDeclined) {
  const ErrorKind declined = ErrorKind::declined;
  EXPECT_THAT(error_with("/model/type", "\"Unigram\"", declined), HasSubstr("model.type \"Unigram\""));
  EXPECT_THAT(error_with("/model/dropout", "0.1", declined), HasSubstr("model.dropout"));
  EXPECT_THAT(error_with("/model/end_of_word_suffix", "\"</w>\"", declined), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(error_with("/normalizer", R"({"type": "Precompiled"})", declined),
              HasSubstr("normalizer.type \"Precompiled\""));
  EXPECT_THAT(error_with("/pre_tokenizer", R"({"type": "BertPreTokenizer"})", declined),
              HasSubstr("pre_tokenizer.type"));
  EXPECT_THAT(
      error_with("/pre_tokenizer",
                 R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}]})", declined),
      HasSubstr("after ByteLevel"));
  EXPECT_THAT(error_with("/decoder", R"({"type": "CTC"})", declined), HasSubstr("decoder.type \"CTC\""));
}

TEST(HostileTokenizer, BrokenJson) {
  for (const char* text : {"", "{", "[]", "null", "{\"model\": 1}", "\xff\xfe"})
    EXPECT_NE(error_of(text), "no error") << text;
  EXPECT_NE(error_of(std::string(100000, '[')), "no error");
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 2000; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  EXPECT_THAT(error_of(R"({"normalizer": )" + nested + "}"), HasSubstr("nested deeper"));
}

json good_tekken() {
  json file = {{"config",
                {{"pattern", "[a-z]+|[^a-z]"},
                 {"default_vocab_size", 268},
                 {"default_num_special_tokens", 10},
                 {"version", "v3"}}}};
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int b = 0; b < 256; ++b) {
    file["vocab"].push_back({{"rank", b},
                             {"token_bytes", std::string{digits[static_cast<size_t>(b >> 2)],
                                                         digits[static_cast<size_t>((b & 3) << 4)], '=', '='}}});
  }
  file["vocab"].push_back({{"rank", 256}, {"token_bytes", "YWI="}});  // ab
  file["vocab"].push_back({{"rank", 257}, {"token_bytes", "YWJj"}});  // abc
  return file;
}

std::string tekken_error(const char* pointer, const char* value) {
  json file = good_tekken();
  file[json::json_pointer(pointer)] = json::parse(value);
  try {
    Tokenizer tokenizer(read_tekken_tokenizer(file.dump(), "t/tekken.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_file) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("t/tekken.json"));
    return error.what();
  }
  return "no error";
}

TEST(HostileTekken, Files) {
  const Tokenizer tokenizer(read_tekken_tokenizer(good_tekken().dump(), "t"));
  EXPECT_EQ(tokenizer.encode("abc aab</s>"), (std::vector<int32_t>{1, 267, 42, 107, 266, 2}));
  EXPECT_EQ(tokenizer.token_text(9), "[TOOL_CALLS]");

  EXPECT_THAT(tekken_error("/config/default_vocab_size", "5"), HasSubstr("default_vocab_size 5"));
  EXPECT_THAT(tekken_error("/config/default_vocab_size", "1000000000000"), HasSubstr("default_vocab_size"));
  EXPECT_THAT(tekken_error("/config/default_vocab_size", "300"), HasSubstr("vocab has 258 tokens"));
  EXPECT_THAT(tekken_error("/config/default_num_special_tokens", "-1"), HasSubstr("default_num_special_tokens -1"));
  EXPECT_THAT(tekken_error("/config/pattern", "\"(\""), HasSubstr("split pattern"));
  EXPECT_THAT(tekken_error("/config/pattern", "7"), HasSubstr("config.pattern"));
  EXPECT_THAT(tekken_error("/config", "[]"), HasSubstr("config"));
  EXPECT_THAT(tekken_error("/vocab", "{}"), HasSubstr("vocab must be a list"));
  EXPECT_THAT(tekken_error("/vocab/3/rank", "4"), HasSubstr("vocab[3].rank is 4"));
  EXPECT_THAT(tekken_error("/vocab/3/token_bytes", "\"*\""), HasSubstr("vocab[3].token_bytes is not base64"));
  EXPECT_THAT(tekken_error("/vocab/3/token_bytes", "\"\""), HasSubstr("vocab[3].token_bytes"));
  EXPECT_THAT(tekken_error("/vocab/3/token_bytes", "\"AA==\""), HasSubstr("vocab[3].token_bytes repeats"));
  EXPECT_THAT(tekken_error("/vocab/3/token_bytes", "\"YWJjZA==\""), HasSubstr("no token for the byte 3"));
  EXPECT_THAT(tekken_error("/vocab/3", "3"), HasSubstr("vocab[3]"));
  EXPECT_THAT(tekken_error("/special_tokens", R"([{"rank": 10, "token_str": "x", "is_control": true}])"),
              HasSubstr("special_tokens[0].rank is 10"));
  EXPECT_THAT(tekken_error("/special_tokens", R"([{"rank": 1, "token_str": "x"}, {"rank": 1, "token_str": "y"}])"),
              HasSubstr("is used twice"));
  EXPECT_THAT(tekken_error("/special_tokens", "5"), HasSubstr("special_tokens must be a list"));
}

TEST(HostileTokenizer, DataThatNamesIdsOutOfRangeIsRefused) {
  TokenizerData data;
  data.tokens = {"a", "b"};
  const auto refused = [](TokenizerData bad) {
    try {
      Tokenizer tokenizer(std::move(bad));
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::bad_file;
    }
  };
  TokenizerData merge = data, added = data, prefix = data, eos = data;
  merge.merges = {{0, 1, 2, 0}};
  added.added.push_back({2, "x"});
  prefix.prefix = {5};
  eos.eos_id = -2;
  EXPECT_TRUE(refused(merge));
  EXPECT_TRUE(refused(added));
  EXPECT_TRUE(refused(prefix));
  EXPECT_TRUE(refused(eos));
  EXPECT_TRUE(refused(TokenizerData{}));
  EXPECT_FALSE(refused(data));
}

}  // namespace
}  // namespace ingot
