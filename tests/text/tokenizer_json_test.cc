// tokenizer.json written from a tokenizer and read back: the same ids. Against Hugging Face's own reader:
// tests/vllm/export_test.py.
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/gguf.h"
#include "ingot/tokenizer.h"
#include "text/tokenizer_readers.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kJsonTexts = {
    "",
    "Hello, world!",
    "  two  spaces\tand\n\nlines \n",
    "It's we've I'LL 1234567 3.14 x=y**2",
    "na\u00efve \u00c5ngstr\u00f6m \u4f60\u597d \u3053\u3093 \U0001F600\U0001F468\u200D\U0001F469",
    "<|im_start|>user\nhi<|im_end|></s><s>[INST] x [/INST]<|endoftext|>",
    "def f(a):\n    return {\"k\": [a, None]}\n",
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void expect_equal(const TokenizerData& data, const std::string& name) {
  const Tokenizer before(data), after(read_hf_tokenizer(write_tokenizer_json(data), name));
  for (const std::string& text : kJsonTexts)
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special = special, .parse_special = true};
      const std::vector<int32_t> ids = before.encode(text, options);
      EXPECT_EQ(after.encode(text, options), ids) << name << ": " << text;
      EXPECT_EQ(after.decode(ids, true), before.decode(ids, true)) << name << ": " << text;
    }
}

TEST(TokenizerJson, EveryFixtureComesBack) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(INGOT_FIXTURES) / "tokenizers")) {
    const fs::path file = entry.path() / "tokenizer.json";
    if (!fs::exists(file)) continue;
    ++count;
    expect_equal(read_hf_tokenizer(read(file), file.string()), entry.path().filename().string());
  }
  EXPECT_GE(count, 8);
}

TEST(TokenizerJson, TheDefaultModelComesBack) {
  const char* model = std::getenv("INGOT_DEFAULT_MODEL");
  ASSERT_NE(model, nullptr) << "set INGOT_DEFAULT_MODEL (make test does)";
  const auto file = GgufFile::open(model);
  expect_equal(read_gguf_tokenizer(*file, model), "default");
}

}  // namespace
}  // namespace ingot
