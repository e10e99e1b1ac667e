#include "helpers.h"

namespace ingot::grammar {
namespace {

std::shared_ptr<Grammar> gbnf(std::string source) { return Grammar::gbnf(test::byte_vocabulary(), std::move(source)); }

TEST(Gbnf, Accepts) {
  struct Case {
    const char* source;
    std::vector<std::string> yes, no;
  };
  const std::vector<Case> cases = {
      {"root ::= \"a\" | \"bc\"", {"a", "bc"}, {"", "ab", "b"}},
      {"root ::= [a-z]+ \"x\"", {"ax", "xx", "xxx"}, {"x", "a"}},  // a repetition gives back what others need
      {"root ::= \"(\" root \")\" | \"\"", {"", "()", "((()))"}, {"(", "())"}},
      {"root ::= root \"+\" n | n\nn ::= [0-9]+", {"1", "1+22+3"}, {"+", "1+"}},  // left recursion
      {"root ::= n (\",\" n){0,2}\nn ::= [0-9]", {"1", "1,2,3"}, {"1,2,3,4", ""}},
      {"root ::= ( \"a\" |\n  \"b\" )* # a comment\n", {"", "abba"}, {"c"}},
      {"root ::= x\n\nx ::= \"1\" |\n \"2\"\n | \"3\"", {"1", "2", "3"}, {"4"}},
      {"root ::= [^\"\\n]{2} .", {"ab\n", "\xC3\xA9\xC3\xA9x"}, {"a\nb", "\"aa"}},
      {"root ::= \"\\x41\\u00e9\\U0001F4A9\\t\\\"\\\\\"", {"A\xC3\xA9\xF0\x9F\x92\xA9\t\"\\"}, {"A"}},
      {"root ::= item+\nitem ::= \"<\" item* \">\"", {"<>", "<><<>>"}, {"<", "><"}},
      {"root ::= a{3}\na ::= \"(\" a \")\" | \"x\"", {"xxx", "x(x)((x))"}, {"xx", "xxxx"}},
      // An empty rule at the end of one that began before.
      {"root ::= \"<\" c \">\" c\nc ::= a b\na ::= \"(\" a \")\" | \"x\"\nb ::= \"\" | \"[\" b \"]\"",
       {"<x>x", "<(x)[]>x[[]]"},
       {"<x>", "<>x", "<x[>x"}},
      {"root ::= (a?)* \"!\"\na ::= \"(\" a \")\" | \"x\"", {"!", "x(x)!"}, {"(!"}},
  };
  for (const Case& each : cases) {
    const auto grammar = gbnf(each.source);
    for (const std::string& text : each.yes) EXPECT_TRUE(test::accepts(grammar, text)) << each.source << " on " << text;
    for (const std::string& text : each.no) EXPECT_FALSE(test::accepts(grammar, text)) << each.source << " on " << text;
  }
}

TEST(Gbnf, SpecialTokens) {
  const auto grammar = gbnf("root ::= <tool> [a-z]+");
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept('a'));
  EXPECT_FALSE(matcher.accept('<'));
  EXPECT_TRUE(matcher.accept(test::kTool));
  EXPECT_FALSE(matcher.accept(test::kTool));
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_NE(test::refusal([] { gbnf("root ::= <none>"); }).find("no special token"), std::string::npos);
}

TEST(Gbnf, SaysWhatIsWrongAndWhere) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"a ::= \"x\"", "no rule named root"},
      {"root ::= a", "line 1: the rule a is not defined"},
      {"root ::= \"x\"\nroot ::= \"y\"", "line 2: the rule root is defined twice"},
      {"root ::= \"x", "literal has no end"},
      {"root ::= [a", "has no ]"},
      {"root ::= (\"a\"", "expected )"},
      {"root ::= \"a\"{2,1}", "wrong way round"},
      {"root ::= \"a\"{x}", "expected a number"},
      {"root = \"a\"", "expected ::="},
      {"root ::= a\na ::= \"x\" a", "can never end"},
      {"root ::= \"\\q\"", "no escape of GBNF"},
      {"root ::= \"a\" ]", "expected the end of the line"},
  };
  for (const auto& [source, reason] : cases) {
    const std::string error = test::refusal([&] { gbnf(source); });
    EXPECT_NE(error.find(reason), std::string::npos) << source << ": " << error;
  }
  EXPECT_NE(test::refusal([] { gbnf("root ::= " + std::string(1000, '(')); }).find("nested"), std::string::npos);
}

}  // namespace
}  // namespace ingot::grammar
