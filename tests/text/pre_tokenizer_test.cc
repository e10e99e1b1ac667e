// Expected pieces are those of Hugging Face `tokenizers`.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "text/normalizer.h"

namespace ingot {
namespace {

using Words = std::vector<std::string>;
using Kind = PreTokenizerStep::Kind;

class Collect final : public WordSink {
 public:
  void word(std::string_view word) override { words.emplace_back(word); }
  Words words;
};

Words cut(const std::vector<PreTokenizerStep>& steps, std::string_view text, bool at_start = true) {
  Collect sink;
  PreTokenizer(steps).run(text, at_start, sink);
  return sink.words;
}

PreTokenizerStep split(std::string_view pattern, SplitBehavior behavior, bool regex = false, bool invert = false) {
  PreTokenizerStep step{regex ? Kind::split_regex : Kind::split_text};
  step.pattern = pattern;
  step.behavior = behavior;
  step.invert = invert;
  return step;
}

PreTokenizerStep metaspace(PrependScheme scheme, bool cut_at_marks) {
  PreTokenizerStep step{Kind::metaspace};
  step.replacement = "_";
  step.prepend_scheme = scheme;
  step.split = cut_at_marks;
  return step;
}

TEST(PreTokenizer, SplitBehaviours) {
  using enum SplitBehavior;
  const std::string_view text = "-a--b-c---";
  for (bool regex : {false, true}) {
    EXPECT_EQ(cut({split("-", isolated, regex)}, text), (Words{"-", "a", "-", "-", "b", "-", "c", "-", "-", "-"}));
    EXPECT_EQ(cut({split("-", removed, regex)}, text), (Words{"a", "b", "c"}));
    EXPECT_EQ(cut({split("-", merged_with_previous, regex)}, text), (Words{"-", "a-", "-", "b-", "c-", "-", "-"}));
    EXPECT_EQ(cut({split("-", merged_with_next, regex)}, text), (Words{"-a", "-", "-b", "-c", "-", "-", "-"}));
    EXPECT_EQ(cut({split("-", contiguous, regex)}, text), (Words{"-", "a", "--", "b", "-", "c", "---"}));
    EXPECT_EQ(cut({split("-", isolated, regex, true)}, "-a--b"), (Words{"-", "a", "-", "-", "b"}));
    EXPECT_EQ(cut({split("-", removed, regex, true)}, "-a--b"), (Words{"-", "-", "-"}));
    EXPECT_EQ(cut({split("-", merged_with_previous, regex, true)}, "-a--b"), (Words{"-a", "-", "-b"}));
    EXPECT_EQ(cut({split("-", merged_with_next, regex, true)}, "-a--b"), (Words{"-", "a-", "-", "b"}));
    EXPECT_EQ(cut({split("-", contiguous, regex, true)}, "-a--b"), (Words{"-", "a", "--", "b"}));
  }
  EXPECT_EQ(cut({split("", isolated, true)}, "a\u00e9b"), (Words{"a", "\u00e9", "b"}));
}

// A pattern with a scanner must give the same with behaviours that the scanner cannot express.
TEST(PreTokenizer, KnownPatternsWithOtherBehaviours) {
  using enum SplitBehavior;
  EXPECT_EQ(cut({split(kGpt2Pattern, isolated, true)}, "a b  c"), (Words{"a", " b", " ", " c"}));
  EXPECT_EQ(cut({split(kGpt2Pattern, removed, true, true)}, "a b  c"), (Words{"a", " b", " ", " c"}));
  EXPECT_EQ(cut({split(kGpt2Pattern, removed, true)}, "a b  c"), Words{});
  EXPECT_EQ(cut({split(kGpt2Pattern, contiguous, true)}, "a b  c"), Words{"a b  c"});
}

TEST(PreTokenizer, Digits) {
  PreTokenizerStep digits{Kind::digits};
  EXPECT_EQ(cut({digits}, "ab12c\u00b34"), (Words{"ab", "12", "c", "\u00b34"}));
  digits.individual_digits = true;
  EXPECT_EQ(cut({digits}, "ab12c\u00b3"), (Words{"ab", "1", "2", "c", "\u00b3"}));
  EXPECT_EQ(cut({digits}, ""), Words{});
}

TEST(PreTokenizer, Metaspace) {
  EXPECT_EQ(cut({metaspace(PrependScheme::always, true)}, "a  b"), (Words{"_a", "_", "_b"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::always, false)}, "a  b"), Words{"_a__b"});
  EXPECT_EQ(cut({metaspace(PrependScheme::never, true)}, " a b"), (Words{"_a", "_b"}));
  EXPECT_EQ(cut({metaspace(PrependScheme::first, false)}, "a", true), Words{"_a"});
  EXPECT_EQ(cut({metaspace(PrependScheme::first, false)}, "a", false), Words{"a"});
  // "First" is the first piece of the text, whatever cut it before.
  const std::vector<PreTokenizerStep> steps = {split("-", SplitBehavior::isolated),
                                               metaspace(PrependScheme::first, true)};
  EXPECT_EQ(cut(steps, "a-b c"), (Words{"_a", "-", "b", "_c"}));
  EXPECT_EQ(cut(steps, "-a b"), (Words{"_-", "a", "_b"}));
  EXPECT_EQ(cut(steps, " a-b"), (Words{"_a", "-", "b"}));
}

TEST(PreTokenizer, ByteLevelPrefixSpace) {
  PreTokenizerStep step{Kind::byte_level};
  step.add_prefix_space = true;
  EXPECT_EQ(cut({step}, "a b"), (Words{" a", " b"}));
  EXPECT_EQ(cut({step}, " a"), Words{" a"});
  step.use_regex = false;
  EXPECT_EQ(cut({step}, "a b"), Words{" a b"});
}

TEST(PreTokenizer, TooManyStepsAreDeclined) {
  EXPECT_THROW(PreTokenizer(std::vector<PreTokenizerStep>(1000, split("-", SplitBehavior::isolated))), Error);
}

TEST(Normalizer, StepsInOrder) {
  using N = NormalizerStep::Kind;
  const auto run = [](const std::vector<NormalizerStep>& steps, std::string_view text) {
    return Normalizer(steps).run(text);
  };
  EXPECT_EQ(run({}, "x"), "x");
  EXPECT_EQ(run({{N::prepend, "", "_"}, {N::replace_text, " ", "_"}}, "a b"), "_a_b");
  EXPECT_EQ(run({{N::prepend, "", "_"}}, ""), "");
  EXPECT_EQ(run({{N::replace_regex, " {2,}", " "}}, "a    b  "), "a b ");
  EXPECT_EQ(run({{N::strip, "", "", true, false}}, " \u3000a "), "a ");
  EXPECT_EQ(run({{N::strip, "", "", false, true}}, " a\u00a0\n"), " a");
  EXPECT_EQ(run({{N::strip, "", "", true, true}}, " \n "), "");
  EXPECT_EQ(run({{N::nfd}, {N::replace_regex, "\\p{Mn}", ""}, {N::lowercase}}, "\u00c9A"), "ea");
}

}  // namespace
}  // namespace ingot
