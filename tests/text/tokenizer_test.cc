#include "text/tokenizer_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "cpu_time.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "text/fixtures.h"
#include "text/tokenizer_data.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int32_t>;
using testing::HasSubstr;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = true};

std::shared_ptr<const Tokenizer> open(const GgufWriter& writer) {
  const std::string bytes = writer.build();
  return load_tokenizer(*GgufFile::open_bytes(std::as_bytes(std::span(bytes))));
}

// A SentencePiece vocabulary: <unk> <s> </s>, a user-defined token, bytes, characters and three merges by score.
GgufWriter sentencepiece() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "[go]"};
  std::vector<int32_t> types = {2, 3, 3, 4};
  std::vector<float> scores = {0, 0, 0, 0};
  for (int b = 0; b < 256; ++b) {
    tokens.push_back(fmt::format("<0x{:02X}>", b));
    types.push_back(6);
    scores.push_back(0);
  }
  // 260..: characters score low, merged pieces by their order.
  for (const auto& [text, score] : std::vector<std::pair<std::string, float>>{{"\u2581", -100},
                                                                              {"a", -101},
                                                                              {"b", -102},
                                                                              {"\u2581a", -2},
                                                                              {"ab", -1},
                                                                              {"\u2581ab", -3},
                                                                              {"\u2581\u2581", -4}}) {
    tokens.push_back(text);
    types.push_back(1);
    scores.push_back(score);
  }
  GgufWriter writer;
  writer.value_string("tokenizer.ggml.model", "llama")
      .value_strings("tokenizer.ggml.tokens", tokens)
      .value_array("tokenizer.ggml.token_type", GgufWriter::kI32, types)
      .value_array("tokenizer.ggml.scores", GgufWriter::kF32, scores)
      .value_u32("tokenizer.ggml.bos_token_id", 1)
      .value_u32("tokenizer.ggml.eos_token_id", 2)
      .value_u32("tokenizer.ggml.unknown_token_id", 0);
  return writer;
}

TEST(GgufTokenizer, SentencePiece) {
  const auto tokenizer = open(sentencepiece());
  EXPECT_EQ(tokenizer->encode("ab", kPlain), Ids{265});
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{1, 265}));              // BOS by default
  EXPECT_EQ(tokenizer->encode("  ab", kPlain), (Ids{266, 265}));  // one space is added in front
  EXPECT_EQ(tokenizer->encode("a\n", kPlain), (Ids{263, 4 + 10}));
  EXPECT_EQ(tokenizer->encode("\u00e9", kPlain), (Ids{260, 4 + 0xC3, 4 + 0xA9}));
  // User-defined tokens are matched even where special ones are not; what follows gets its own space.
  EXPECT_EQ(tokenizer->encode("a[go]b</s>", {.add_special = false, .parse_special = true}), (Ids{263, 3, 260, 262, 2}));
  EXPECT_EQ(tokenizer->encode("[go]</s>", {.add_special = false, .parse_special = false}),
            (Ids{3, 260, 4 + '<', 4 + '/', 4 + 's', 4 + '>'}));
  EXPECT_EQ(tokenizer->encode("<0x41>", kPlain), (Ids{260, 4 + '<', 4 + '0', 4 + 'x', 4 + '4', 4 + '1', 4 + '>'}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 265, 263, 199, 173}), "ab a\u00e9");
  EXPECT_EQ(tokenizer->token_bytes(265), " ab");
  EXPECT_EQ(tokenizer->token_bytes(199), "\xC3");
  EXPECT_EQ(tokenizer->bos_token(), "<s>");
  EXPECT_EQ(tokenizer->unk_token(), "<unk>");
}

TEST(GgufTokenizer, SentencePieceFlags) {
  GgufWriter writer = sentencepiece();
  writer.value_bool("tokenizer.ggml.add_space_prefix", false)
      .value_bool("tokenizer.ggml.add_bos_token", false)
      .value_bool("tokenizer.ggml.add_eos_token", true)
      .value_string("tokenizer.chat_template", "main")
      .value_string("tokenizer.chat_template.tool_use", "tools");
  const auto tokenizer = open(writer);
  EXPECT_EQ(tokenizer->encode("ab"), (Ids{264, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{265}), " ab");
  EXPECT_EQ(tokenizer->chat_template(), "main");
  EXPECT_EQ(tokenizer->named_templates().at("tool_use"), "tools");
}

GgufWriter byte_level(std::string_view pre) {
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_end|>"};
  std::vector<int32_t> types = {3, 3};
  for (const char* text : {"a", "b", "c", "1", "2", "\u0120", "ab", "\u0120ab", "abc", "12"}) {
    tokens.push_back(text);
    types.push_back(1);
  }
  GgufWriter writer;
  writer.value_string("tokenizer.ggml.model", "gpt2")
      .value_strings("tokenizer.ggml.tokens", tokens)
      .value_array("tokenizer.ggml.token_type", GgufWriter::kI32, types)
      .value_strings("tokenizer.ggml.merges", {"a b", "\u0120 ab", "1 2"})
      .value_u32("tokenizer.ggml.bos_token_id", 0)
      .value_u32("tokenizer.ggml.eos_token_id", 0);
  if (!pre.empty()) writer.value_string("tokenizer.ggml.pre", pre);
  return writer;
}

TEST(GgufTokenizer, ByteLevelByPreTokenizer) {
  // abc is a token that merges do not build: only ignore_merges finds it. 12 is one where digits stay together.
  EXPECT_EQ(open(byte_level("gpt-2"))->encode("abc ab12"), (Ids{8, 4, 9, 11}));
  EXPECT_EQ(open(byte_level("smollm"))->encode("abc ab12"), (Ids{8, 4, 9, 5, 6}));
  EXPECT_EQ(open(byte_level("qwen2"))->encode("abc ab12"), (Ids{8, 4, 9, 5, 6}));
  EXPECT_EQ(open(byte_level("llama-bpe"))->encode("abc ab12"), (Ids{0, 10, 9, 11}));  // BOS by default
  EXPECT_EQ(open(byte_level("tekken"))->encode("abc ab12"), (Ids{0, 10, 9, 5, 6}));
  EXPECT_EQ(open(byte_level("gpt-2"))->encode("1212"), (Ids{11, 11}));
  EXPECT_EQ(open(byte_level(""))->encode("1212"), (Ids{11, 5, 6}));  // digits by three where no name is given
  EXPECT_EQ(open(byte_level("gpt-2"))->end_ids(), (Ids{0, 1}));
  // Bytes without a token are dropped and their neighbours merge, as in the reference.
  EXPECT_EQ(open(byte_level("gpt-2"))->encode("azc"), (Ids{2, 4}));
  EXPECT_EQ(open(byte_level("gpt-2"))->encode("azb"), Ids{8});
}

std::string gguf_error(const GgufWriter& writer, ErrorKind kind) {
  try {
    open(writer);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(GgufTokenizer, BadFilesNameTheKey) {
  EXPECT_THAT(gguf_error(GgufWriter().value_u32("x", 1), ErrorKind::declined), HasSubstr("tokenizer.ggml.model"));
  EXPECT_THAT(gguf_error(GgufWriter().value_string("tokenizer.ggml.model", "gpt2"), ErrorKind::bad_file),
              HasSubstr("tokenizer.ggml.tokens is missing"));
  EXPECT_THAT(gguf_error(byte_level("klingon"), ErrorKind::declined), HasSubstr("tokenizer.ggml.pre \"klingon\""));

  GgufWriter other;
  other.value_string("tokenizer.ggml.model", "bert").value_strings("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(gguf_error(other, ErrorKind::declined), HasSubstr("\"bert\""));

  GgufWriter types;
  types.value_string("tokenizer.ggml.model", "gpt2")
      .value_strings("tokenizer.ggml.tokens", {"a", "b"})
      .value_array<int32_t>("tokenizer.ggml.token_type", GgufWriter::kI32, {1});
  EXPECT_THAT(gguf_error(types, ErrorKind::bad_file), HasSubstr("tokenizer.ggml.token_type has 1 entries"));

  for (const char* merge : {"a", "a c", "", "a ", " "}) {
    GgufWriter writer;
    writer.value_string("tokenizer.ggml.model", "gpt2")
        .value_strings("tokenizer.ggml.tokens", {"a", "b"})
        .value_strings("tokenizer.ggml.merges", {merge});
    EXPECT_THAT(gguf_error(writer, ErrorKind::bad_file), HasSubstr("tokenizer.ggml.merges[0]")) << merge;
  }
  GgufWriter scores;
  scores.value_string("tokenizer.ggml.model", "llama").value_strings("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_THAT(gguf_error(scores, ErrorKind::bad_file), HasSubstr("tokenizer.ggml.scores"));

  GgufWriter ids;
  ids.value_string("tokenizer.ggml.model", "gpt2")
      .value_strings("tokenizer.ggml.tokens", {"a"})
      .value_u32("tokenizer.ggml.eos_token_id", 7);
  EXPECT_THAT(gguf_error(ids, ErrorKind::bad_file), HasSubstr("tokenizer.ggml.eos_token_id is 7"));
}

TEST(LoadTokenizer, FolderWithoutOneIsDeclined) {
  try {
    load_tokenizer(fs::path(INGOT_FIXTURES));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::declined);
    EXPECT_THAT(error.what(), HasSubstr("neither tokenizer.json nor tekken.json"));
  }
}

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(fs::path(testing::TempDir()) / ("ingot_tokenizer_" + std::to_string(reinterpret_cast<uintptr_t>(this)))) {
    fs::create_directories(path_);
  }
  ~TemporaryFolder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }
  void write(const fs::path& name, std::string_view text) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  fs::path path_;
};

TEST(LoadTokenizer, TemplatesInFilesOfTheirOwn) {
  const TemporaryFolder folder;
  fs::copy_file(kTokenizers / "llama2/tokenizer.json", folder.path() / "tokenizer.json");
  folder.write("tokenizer_config.json", R"({"chat_template": "from the config", "eos_token": "</s>"})");
  EXPECT_EQ(load_tokenizer(folder.path())->chat_template(), "from the config");
  folder.write("chat_template.jinja", "from the file");
  folder.write("additional_chat_templates/tool_use.jinja", "with tools");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->chat_template(), "from the file");
  EXPECT_EQ(tokenizer->named_templates().at("tool_use"), "with tools");
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

TEST(LoadTokenizer, LlamaClassesLetTheConfigurationDecideAboutBos) {
  const TemporaryFolder folder;
  fs::copy_file(kTokenizers / "llama2/tokenizer.json", folder.path() / "tokenizer.json");
  folder.write(
      "tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": false, "add_eos_token": true})");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("").back(), 2);
  EXPECT_EQ(load_tokenizer(folder.path())->encode("").size(), 1u);
}

TEST(LoadTokenizer, BadConfigurationNamesFileAndKey) {
  const TemporaryFolder folder;
  fs::copy_file(kTokenizers / "llama2/tokenizer.json", folder.path() / "tokenizer.json");
  for (const auto& [text, key] :
       std::vector<std::pair<const char*, const char*>>{{R"({"bos_token": 5})", "bos_token"},
                                                        {R"({"bos_token": {"x": 1}})", "bos_token.content"},
                                                        {R"({"chat_template": [5]})", "chat_template[0]"},
                                                        {R"({"chat_template": {}})", "chat_template"}}) {
    folder.write("tokenizer_config.json", text);
    try {
      load_tokenizer(folder.path());
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_file);
      EXPECT_THAT(error.what(), HasSubstr("tokenizer_config.json"));
      EXPECT_THAT(error.what(), HasSubstr(key));
    }
  }
}

TEST(Tokenizer, HugeTextsOfEveryKindAreQuick) {
  for (const char* name : {"llama3", "o200k", "llama2", "unknowns"}) {
    const auto tokenizer = load_tokenizer(kTokenizers / name);
    for (std::string_view unit : {"a", " ", "\n", "word", "\u4f60", "\u0301", "\u0915\u094d", "'", "<|im_start|", "Aa",
                                  "\xff", "\u2581", " \n"}) {
      std::string text;
      while (text.size() < 500'000) text += unit;
      const double start = test::thread_cpu_s();
      tokenizer->encode(text);
      EXPECT_LT(test::thread_cpu_s() - start, 30) << name << " " << unit;
    }
  }
}

TEST(Tokenizer, ManyThreadsAtOnce) {
  const auto tokenizer = load_tokenizer(kTokenizers / "llama3");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "word" + std::to_string(i) + " it's \u4f60\u597d ";
  const Ids want = tokenizer->encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) wrong[static_cast<size_t>(t)] += tokenizer->encode(text) != want;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, LooksUpTokens) {
  const auto tokenizer = load_tokenizer(kTokenizers / "gpt2");
  EXPECT_EQ(tokenizer->token_text(tokenizer->find("\u0120")), "\u0120");
  EXPECT_EQ(tokenizer->token_bytes(tokenizer->find("\u0120")), " ");
  EXPECT_EQ(tokenizer->find("no such token"), -1);
  EXPECT_EQ(tokenizer->token_text(-1), "");
  EXPECT_EQ(tokenizer->token_text(tokenizer->vocab_size()), "");
  EXPECT_EQ(tokenizer->token_bytes(1 << 30), "");
  EXPECT_FALSE(tokenizer->is_special(-5));
}

TEST(Tokenizer, EndsWhenNobodyWaitsForIt) {
  const auto tokenizer = open(sentencepiece());
  std::atomic<bool> cancelled{true};
  const EncodeOptions options{.cancelled = &cancelled};
  // One word or many.
  for (const std::string& text : {std::string(100'000, 'a'), std::string("a b c d")}) {
    try {
      tokenizer->encode(text, options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::cancelled);
    }
  }
  cancelled = false;
  EXPECT_EQ(tokenizer->encode("a b", options), tokenizer->encode("a b"));
}

}  // namespace
}  // namespace ingot
