#include "grammar/regex.h"

#include "helpers.h"

namespace ingot::grammar {
namespace {

bool matches(const std::string& pattern, std::string_view text, RegexMatch match = RegexMatch::anywhere,
             Encoding encoding = Encoding::text) {
  Budget budget{Limits{.max_compile_time = std::chrono::seconds(20)}};  // a sanitizer takes its time
  ExprPool pool(budget);
  CharEncoder encoder(pool, encoding);
  return pool.matches(parse_regex(encoder, pattern, match, "pattern"), text);
}

struct RegexCase {
  const char* pattern;
  std::vector<std::string> yes, no;
};

TEST(Regex, MatchesAnywhere) {
  const std::vector<RegexCase> cases = {
      {"a", {"a", "xax", "ba"}, {"", "b"}},
      {"^a", {"a", "ab"}, {"ba", ""}},
      {"a$", {"a", "ba"}, {"ab"}},
      {"^$", {""}, {"a"}},
      {"^a|b$", {"ax", "xb", "b"}, {"xa", "bx"}},
      {"^(?:a|^b)c$", {"ac", "bc"}, {"c", "abc"}},
      {"a{2}", {"aa", "baab"}, {"a", "aba"}},
      {"^a{2,3}$", {"aa", "aaa"}, {"a", "aaaa"}},
      {"^a{2,}$", {"aa", "aaaaa"}, {"a"}},
      {"^a{,2}$", {"a{,2}"}, {"a", "aa"}},
      {"^x*?y+?$", {"y", "xxyy"}, {"x"}},
      {"^[a-c]+$", {"abc"}, {"d", ""}},
      {"^[^a-c]$", {"d", "\xC3\xA9", "\n"}, {"a", "dd"}},
      {"^[\\]\\-a]$", {"]", "-", "a"}, {"b"}},
      {"^[a-]$", {"a", "-"}, {"b"}},
      {"^[\\w-]+$", {"a-b", "_9"}, {"a b"}},
      {"^.$", {"a", "\xF0\x9F\x92\xA9"}, {"\n", "", "ab"}},
      {"^\\d\\D\\w\\W\\s\\S$", {"1a_- x"}, {"aaaaaa"}},
      {"^\\u00e9\\x41\\u{1F4A9}\\cA\\0$", {std::string("\xC3\xA9") + "A\xF0\x9F\x92\xA9\x01" + '\0'}, {"e"}},
      {"^\\uD83D\\uDCA9$", {"\xF0\x9F\x92\xA9"}, {""}},
      {"^\\p{Lu}\\p{Letter}+$",
       {"\xC3\x89"
        "cole",
        "Ab"},
       {"aB", "A1"}},
      {"^\\P{L}$", {"1"}, {"a"}},
      {"^(?<year>\\d{4})$", {"2024"}, {"24"}},
      {"^(?=.*\\d)(?=.*[a-z]).{3,}$", {"a1x", "1aaa"}, {"aaa", "111", "a1"}},
      {"^(?!foo)\\w+$", {"bar", "fo"}, {"foo", "foobar"}},
      {"^(a(?=b)|c)b$", {"ab", "cb"}, {"b"}},
      {"a(?!b)", {"a", "ac", "aba"}, {"ab", "b"}},
      {"^(^a){2}$", {}, {"aa", "a"}},
      {"\\/\\.\\$", {"/.$"}, {"/x$"}},
  };
  for (const RegexCase& each : cases) {
    for (const std::string& text : each.yes) EXPECT_TRUE(matches(each.pattern, text)) << each.pattern << " on " << text;
    for (const std::string& text : each.no) EXPECT_FALSE(matches(each.pattern, text)) << each.pattern << " on " << text;
  }
}

TEST(Regex, MatchesAsAWhole) {
  EXPECT_TRUE(matches("a|bc", "bc", RegexMatch::whole));
  EXPECT_FALSE(matches("a|bc", "xbc", RegexMatch::whole));
  EXPECT_FALSE(matches("a|bc", "bcx", RegexMatch::whole));
}

TEST(Regex, WithinJsonStrings) {
  const auto in_json = [](const char* pattern, std::string_view text) {
    return matches(pattern, text, RegexMatch::whole, Encoding::json);
  };
  EXPECT_TRUE(in_json("a\"b\\\\", "a\\\"b\\\\"));
  EXPECT_FALSE(in_json("a\"b", "a\"b"));
  EXPECT_TRUE(in_json("\\n", "\\n"));
  EXPECT_TRUE(in_json("\\n", "\\u000a"));
  EXPECT_FALSE(in_json("\\n", "\n"));
  EXPECT_TRUE(in_json("\\u00e9", "\xC3\xA9"));
  EXPECT_TRUE(in_json("\\u00e9", "\\u00E9"));
  EXPECT_TRUE(in_json(".", "\\ud83d\\udca9"));
  EXPECT_FALSE(in_json("..", "\\ud83d\\udca9"));
  EXPECT_FALSE(in_json(".", "\\ud83d"));
  EXPECT_FALSE(in_json("a", "\\u0061"));  // one spelling for what needs no escape
}

TEST(Regex, SaysWhatIsNotSupported) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"(a", "without its )"},     {"a)", "without a ("},          {"[a", "without its ]"},
      {"*a", "nothing to repeat"}, {"a{3,2}", "wrong way"},        {"[b-a]", "wrong way"},
      {"(a)\\1", "backreference"}, {"\\bfoo", "word boundary"},    {"(?<=a)b", "lookbehind"},
      {"\\q", "no escape"},        {"\\p{Foo}", "property"},       {"(?:(?!a).)*", "repeats"},
      {"a*^b", "behind a part"},   {"a{9999999}", "repeats more"}, {"\\x4g", "digits"},
      {"^*", "repeats an anchor"},
  };
  for (const auto& [pattern, reason] : cases) {
    const std::string error = test::refusal([&] { matches(pattern, ""); });
    EXPECT_NE(error.find(reason), std::string::npos) << pattern << ": " << error;
    EXPECT_TRUE(error.starts_with("pattern ")) << error;
  }
}

TEST(Regex, NestingAndLengthAreBounded) {
  EXPECT_NE(test::refusal([] { matches(std::string(5000, '('), ""); }).find("nested"), std::string::npos);
  EXPECT_NE(test::refusal([] { matches(std::string(100'000, 'a'), ""); }).find("longer"), std::string::npos);
}

}  // namespace
}  // namespace ingot::grammar
