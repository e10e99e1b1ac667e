// The hand-written scanners must cut exactly like the patterns they stand for.
#include "text/word_scanners.h"

#include <gtest/gtest.h>

#include <random>

#include "soak.h"
#include "text/regex.h"

namespace ingot {
namespace {

struct Case {
  const char* name;
  std::string_view pattern;
};

class WordScanners : public testing::TestWithParam<Case> {
 protected:
  WordScanners() : regex_(GetParam().pattern), scanner_(find_scanner(GetParam().pattern)) {}

  void expect_same(std::string_view text) {
    std::vector<Regex::Match> want;
    regex_.find_all(text, want);
    const char* p = text.data();
    const char* end = p + text.size();
    for (const Regex::Match& match : want) {
      ASSERT_EQ(static_cast<size_t>(p - text.data()), match.begin) << text;
      ASSERT_NE(p, end);
      p = scanner_(CharClasses::get(), p, end);
      ASSERT_EQ(static_cast<size_t>(p - text.data()), match.end) << text;
    }
    ASSERT_EQ(p, end) << text;
  }

  Regex regex_;
  WordScanner scanner_;
};

// Every character, after, before and between the characters that patterns name.
TEST_P(WordScanners, EveryCharacterInContext) {
  const char* contexts[][2] = {{"", ""}, {"'", " a"}, {" ", "s"}, {"A", "a"}, {"1", "\n"}};
  std::string text;
  for (const auto& context : contexts) {
    for (char32_t code = 0; code < 0x110000; ++code) {
      if (code >= 0xD800 && code < 0xE000) continue;
      // Every character of the first blocks, then one in thirty-one: these are long uniform runs.
      if (code >= (test::kSanitized ? 0x300 : 0x3400) && code % 31 != 0) continue;
      text.clear();
      text += context[0];
      append_utf8(text, code);
      text += context[1];
      expect_same(text);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(WordScanners, RandomTexts) {
  const std::u32string pool =
      U"aAzZsStTdDmMlLrRvVeE''''    "
      U"\n\n\r\t.,!?-/\\<|0123456789\u00e9\u00c9\u00df\u017f\u01c5\u02b0\u00aa\u05de\u4e2d\u304b"
      U"\uac00\u0e44\u092e\u093f\u0301\u0302\u0903\u20dd\u00a0\u3000\u2028\u200d\U0001f600\U0001f3fd\u00b2\u2163\u0663"
      U"\u00bd\u20ac\u2581\u0000\u0085\u180e";
  std::mt19937 rng(42);
  std::string text;
  for (int round = 0; round < 30000; ++round) {
    text.clear();
    const size_t length = rng() % 24;
    for (size_t i = 0; i < length; ++i) append_utf8(text, pool[rng() % pool.size()]);
    expect_same(text);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, WordScanners,
                         testing::Values(Case{"gpt2", kGpt2Pattern}, Case{"llama3", kLlama3Pattern},
                                         Case{"qwen2", kQwen2Pattern}, Case{"tekken", kTekkenPattern}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(FindScanner, OnlyForItsOwnPattern) {
  EXPECT_EQ(find_scanner("\\s+"), nullptr);
  EXPECT_EQ(find_scanner(kTekkenPattern), &scan_tekken);
}

}  // namespace
}  // namespace ingot
