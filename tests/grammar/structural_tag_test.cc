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
