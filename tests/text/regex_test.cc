#include "text/regex.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace ingot {
namespace {

std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  std::vector<Regex::Match> found;
  Regex(pattern).find_all(text, found);
  std::vector<std::string> out;
  for (const Regex::Match& match : found) out.emplace_back(text.substr(match.begin, match.end - match.begin));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Regex, FindsMatchesLeftToRight) {
  EXPECT_EQ(matches("[a-c]+", "abxcc"), (Texts{"ab", "cc"}));
  EXPECT_EQ(matches("a|ab", "ab"), Texts{"a"});
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b"), (Texts{"  ", " "}));
  EXPECT_EQ(matches("(?i:'s)", "'S '\u017f"), (Texts{"'S", "'\u017f"}));
  EXPECT_EQ(matches("x", ""), Texts{});
  EXPECT_EQ(matches(".", "a\nb"), (Texts{"a", "b"}));
}

TEST(Regex, EmptyMatchesAdvance) {
  EXPECT_EQ(matches("b*", "abb\u00e9"), (Texts{"", "bb", ""}));
  EXPECT_EQ(matches("x*", "\u00e9"), (Texts{"", ""}));
}

TEST(Regex, ClassesAreThoseOfTheReference) {
  EXPECT_EQ(matches(R"(\s)", "\u180e \u0085\u3000"), (Texts{" ", "\u0085", "\u3000"}));
  EXPECT_EQ(matches(R"(\S)", " \u180e"), Texts{"\u180e"});
  EXPECT_EQ(matches(R"([\S\n])", " x\n"), (Texts{"x", "\n"}));
  EXPECT_EQ(matches(R"(\p{L}+)", "a\U00031350\u4e2d1"), Texts{"a\U00031350\u4e2d"});  // newer than PCRE2's tables
  EXPECT_EQ(matches(R"([^\p{L}\p{N}]+)", "a!?1"), Texts{"!?"});
  EXPECT_EQ(matches(R"(\P{L})", "a1"), Texts{"1"});
  EXPECT_EQ(matches(R"(\p{^L})", "a1"), Texts{"1"});
  EXPECT_EQ(matches(R"(\d)", "a\u0663\u00b2"), Texts{"\u0663"});
  EXPECT_EQ(matches(R"(\h+)", "xDEADz"), Texts{"DEAD"});
  EXPECT_EQ(matches(R"(\x41\u0042\x{43})", "ABC"), Texts{"ABC"});
  EXPECT_EQ(matches(R"(\p{Han}+)", "a\u4e2db"), Texts{"\u4e2d"});
}

TEST(Regex, IntervalPlusIsARepeatNotPossessive) {
  EXPECT_EQ(matches(R"(\d{2,3}+5)", "12345"), Texts{"12345"});
  EXPECT_EQ(matches(R"((ab){1,2}+)", "ababababx"), Texts{"abababab"});
  EXPECT_EQ(matches(R"([a]{,2}b)", "aaab"), Texts{"aab"});
  EXPECT_EQ(matches("a{", "a{"), Texts{"a{"});
}

TEST(Regex, AnchorsAreThoseOfLines) { EXPECT_EQ(matches("^b|e$", "b\nbe\ne"), (Texts{"b", "b", "e", "e"})); }

TEST(Regex, RefusesWhatItCannotRun) {
  const auto kind_of = [](const std::string& pattern) {
    try {
      Regex regex{pattern};
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
      return error.kind();
    }
    return ErrorKind::internal;
  };
  for (const char* pattern : {R"([a-z&&[^b]])", "[a-z&&b]", "[[:alpha:]]", R"(\p{Klingon})", R"(\G)", R"(\K)", "a)",
                              "[a", "a\\", R"(\x{110000})", R"(\p{)"})
    EXPECT_EQ(kind_of(pattern), ErrorKind::declined) << pattern;
  for (const char* pattern : {"(a", "*", "(?<=a+)"}) EXPECT_EQ(kind_of(pattern), ErrorKind::bad_file) << pattern;
  EXPECT_EQ(kind_of(std::string(100000, 'a')), ErrorKind::bad_file);
  EXPECT_EQ(kind_of(std::string(5000, '(')), ErrorKind::bad_file);
}

TEST(Regex, RunawayBacktrackingIsAnError) {
  const std::string text = std::string(60, 'a') + "b";
  std::vector<Regex::Match> found;
  EXPECT_THROW(Regex("(a+)+c|(a|aa)+$x").find_all(text, found), Error);
}

}  // namespace
}  // namespace ingot
