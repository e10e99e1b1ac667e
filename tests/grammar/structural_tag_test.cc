#include <fmt/format.h>

#include <ctime>

#include "helpers.h"

namespace ingot::grammar {
namespace {

std::shared_ptr<Grammar> tag(std::string text) {
  return Grammar::structural_tag(test::byte_vocabulary(), std::move(text));
}

constexpr const char* kTwoTools = R"({"triggers":["<f="],"structures":[
  {"begin":"<f=add>","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},"end":"</f>"},
  {"begin":"<f=say>","schema":{"type":"string"},"end":"</f>"}]})";

TEST(StructuralTag, IslandsInFreeText) {
  const auto grammar = tag(kTwoTools);
  for (const char* text :
       {"", "hello", "a < b, f=", "<f=add>{\"a\":1}</f>", "so: <f=say>\"x\"</f> and <f=add>{\"a\":2}</f>!",
        "<f=say>\"<f=\"</f>", "<<f=say>\"\"</f>", "<f"})
    EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const char* text : {"<f=", "<f=other>", "<f=add>{}</f>", "<f=add>{\"a\":1}", "x<f=say>1</f>"})
    EXPECT_FALSE(test::accepts(grammar, text)) << text;
}

TEST(StructuralTag, RequiredOnesStandAlone) {
  const std::string structures = R"("structures":[
    {"begin":"<f=add>","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},"end":"</f>"},
    {"begin":"<f=say>","schema":{"type":"string"},"end":"</f>"}]})";
  const auto many = tag(R"({"required":true,"open":"[","separator":",","close":"]",)" + structures);
  for (const char* text : {"[<f=say>\"x\"</f>]", "[<f=add>{\"a\":1}</f>,<f=say>\"\"</f>,<f=say>\"\"</f>]"})
    EXPECT_TRUE(test::accepts(many, text)) << text;
  for (const char* text :
       {"", "hello", "[]", "[<f=say>\"x\"</f>", "x[<f=say>\"x\"</f>]", "[<f=say>\"x\"</f>] ", "[<f=no>"})
    EXPECT_FALSE(test::accepts(many, text)) << text;
  const auto one = tag(R"({"required":true,"once":true,)" + structures);
  EXPECT_TRUE(test::accepts(one, "<f=say>\"x\"</f>"));
  EXPECT_FALSE(test::accepts(one, "<f=say>\"x\"</f><f=say>\"x\"</f>"));
}

TEST(StructuralTag, ReasoningBeforeRequiredOnes) {
  const std::string rest = R"("structures":[{"begin":"<f>","schema":{"type":"null"},"end":""}]})";
  const auto optional = tag(R"({"required":true,"once":true,"reasoning":{"open":"<t>","close":"</t>"},)" + rest);
  for (const char* text : {"<f>null", "<t>I think <f> so</t>\n\n<f>null", "<t></t><f>null"})
    EXPECT_TRUE(test::accepts(optional, text)) << text;
  for (const char* text : {"I think</t><f>null", "<t>I think<f>null", "<t>x</t>so<f>null"})
    EXPECT_FALSE(test::accepts(optional, text)) << text;
  const auto inside = tag(R"({"required":true,"reasoning":{"open":"<t>","close":"</t>","inside":true},)" + rest);
  EXPECT_TRUE(test::accepts(inside, "I think</t><f>null"));
  EXPECT_FALSE(test::accepts(inside, "<f>null"));
}

TEST(StructuralTag, FieldsInsteadOfJson) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},
    "c":{"enum":["x","y"]},"d":{"$ref":"#/$defs/flag"}},"required":["a","d"],"$defs":{"flag":{"type":"boolean"}}})";
  const auto grammar = tag(R"({"required":true,"once":true,"structures":[{"begin":"<f>","end":"</f>","schema":)" +
                           schema + R"(,"fields":{"key_open":"<k=","key_close":">","value_close":"</k>"}}]})");
  for (const char* text :
       {"<f><k=a>some text</k><k=d>true</k></f>", "<f><k=a></k><k=b>12</k><k=c>y</k><k=d>false</k></f>",
        "<f><k=a>1 < 2 \"q\"</k><k=c>x</k><k=d>true</k></f>"})
    EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const char* text :
       {"<f></f>", "<f><k=a>x</k></f>", "<f><k=d>true</k></f>", "<f><k=a>x</k><k=b>no</k><k=d>true</k></f>",
        "<f><k=a>x</k><k=c>z</k><k=d>true</k></f>", "<f><k=a>x</k><k=d>1</k></f>"})
    EXPECT_FALSE(test::accepts(grammar, text)) << text;
  const auto python = tag(
      R"x({"required":true,"open":"[","separator":", ","close":"]","structures":[{"begin":"f(","end":")","schema":)x" +
      schema + R"x(,"fields":{"key_close":"=","separator":", ","json":true}}]})x");
  EXPECT_TRUE(test::accepts(python, "[f(a=\"x\", d=true), f(a=\"\", b=3, d=false)]"));
  EXPECT_FALSE(test::accepts(python, "[f(a=x, d=true)]"));
  EXPECT_FALSE(test::accepts(python, "[f(a=\"x\"d=true)]"));
}

TEST(StructuralTag, SpecialTokensBeginThem) {
  const auto grammar =
      tag(R"({"triggers":["<tool>"],"structures":[{"begin":"<tool>","schema":{"type":"null"},"end":"!"}]})");
  Matcher matcher(grammar);
  EXPECT_EQ(matcher.accept_bytes("text "), 5u);
  Matcher plain = matcher;
  EXPECT_TRUE(matcher.accept(test::kTool));
  EXPECT_EQ(matcher.accept_bytes("null! more"), 10u);
  EXPECT_EQ(plain.accept_bytes("<tool>null!"), 11u);
  EXPECT_FALSE(plain.accept(test::kEnd) && plain.accept('a'));
}

// Agents offer dozens of tools with every request. It takes about 10 ms; the bound is for busy machines.
TEST(StructuralTag, ManyToolsCompileAtOnce) {
  if (ingot::test::kSanitized) GTEST_SKIP() << "the time of a sanitizer";
  std::string structures;
  for (int i = 0; i < 128; ++i)
    structures += fmt::format(R"({}{{"begin":"<f=tool_{}>","end":"</f>","schema":{{"type":"object","properties":{{
      "path":{{"type":"string","minLength":1,"maxLength":200}},"mode":{{"enum":["read","write","append"]}},
      "lines":{{"type":"array","items":{{"type":"integer","minimum":0}},"maxItems":50}},
      "options":{{"type":"object","properties":{{"dry_run":{{"type":"boolean"}},"note_{}":{{"type":["string","null"]}}}},
        "additionalProperties":false}}}},"required":["path","mode"],"additionalProperties":false}}}})",
                              i == 0 ? "" : ",", i, i);
  for (const char* kind : {R"("required":true)", R"("triggers":["<f="])"}) {
    const std::string text = fmt::format("{{{},\"structures\":[{}]}}", kind, structures);
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    const auto grammar = tag(text);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const auto ms = static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
                    static_cast<double>(after.tv_nsec - before.tv_nsec) / 1e6;
    EXPECT_LT(ms, 100);
    RecordProperty("ms", fmt::format("{:.1f}", ms));
    EXPECT_TRUE(test::accepts(grammar, R"(<f=tool_77>{"path":"a","mode":"read","options":{"note_77":null}}</f>)"));
    EXPECT_FALSE(test::accepts(grammar, R"(<f=tool_77>{"path":"a","mode":"read","options":{"note_76":null}}</f>)"));
  }
}

TEST(StructuralTag, SaysWhatIsWrongAndWhere) {
  EXPECT_TRUE(test::refusal([] { tag("{}"); }).starts_with("#/triggers"));
  EXPECT_TRUE(test::refusal([] { tag(R"({"triggers":["<x"],"structures":[]})"); }).starts_with("#/structures"));
  EXPECT_TRUE(test::refusal([] {
                tag(R"({"triggers":["<x"],"structures":[{"begin":"y","schema":{},"end":""}]})");
              }).starts_with("#/structures/0/begin"));
  EXPECT_TRUE(test::refusal([] {
                tag(R"({"triggers":["<x"],"structures":[{"begin":"<x","schema":{"type":"foo"},"end":""}]})");
              }).starts_with("#/structures/0/schema/type"));
}

}  // namespace
}  // namespace ingot::grammar
