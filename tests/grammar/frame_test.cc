#include "helpers.h"

namespace ingot::grammar {
namespace {

constexpr const char* kFlag = R"({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]})";
constexpr const char* kCallTag =
    R"({"required":true,"once":true,"structures":[{"begin":"<f>","schema":{"type":"null"},"end":""}]})";

AnswerFrame thinking(bool inside, std::vector<std::string> never = {}) {
  AnswerFrame frame;
  frame.reasoning = {.open = "<t>", .close = "</t>", .inside = inside, .never = std::move(never)};
  return frame;
}

std::shared_ptr<Grammar> framed(AnswerFrame frame) { return test::schema(kFlag, {.frame = std::move(frame)}); }

std::shared_ptr<Grammar> free_text(AnswerFrame frame) {
  return Grammar::free_text(test::byte_vocabulary(), {.frame = std::move(frame)});
}

TEST(Frame, ReasoningMayComeFirst) {
  const auto grammar = framed(thinking(false));
  for (const char* text : {"{\"ok\":true}", "<t>so { it is</t>{\"ok\":true}", "<t></t>\n\n{\"ok\":false}"})
    EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const char* text : {"", "<t>so</t>", "<t>so{\"ok\":true}", "so</t>{\"ok\":true}", "<t></t><t></t>{\"ok\":true}",
                           "<t></t>well{\"ok\":true}", "<t></t>{}"})
    EXPECT_FALSE(test::accepts(grammar, text)) << text;
}

TEST(Frame, ReasoningThatThePromptHasOpened) {
  const auto grammar = framed(thinking(true));
  EXPECT_TRUE(test::accepts(grammar, "so it is</t>{\"ok\":true}"));
  EXPECT_TRUE(test::accepts(grammar, "</t>\n{\"ok\":true}"));
  EXPECT_FALSE(test::accepts(grammar, "{\"ok\":true}"));
}

TEST(Frame, WhatWouldEndReasoningIsNotInIt) {
  const auto grammar = framed(thinking(true, {"<f>"}));
  EXPECT_TRUE(test::accepts(grammar, "<f and f></t>{\"ok\":true}"));
  EXPECT_FALSE(test::accepts(grammar, "a <f></t>{\"ok\":true}"));
}

TEST(Frame, EveryKindOfText) {
  const Options options{.frame = thinking(false)};
  EXPECT_TRUE(test::accepts(Grammar::regex(test::byte_vocabulary(), "a+", options), "<t>b</t>aa"));
  EXPECT_TRUE(test::accepts(Grammar::choice(test::byte_vocabulary(), {"x", "y"}, options), "<t>b</t>y"));
  EXPECT_TRUE(test::accepts(Grammar::gbnf(test::byte_vocabulary(), "root ::= [0-9]", options), "<t>b</t>7"));
  EXPECT_TRUE(test::accepts(Grammar::any_json(test::byte_vocabulary(), options), "<t>b</t>{}"));
  const auto tag = Grammar::structural_tag(
      test::byte_vocabulary(),
      R"({"triggers":["<f"],"structures":[{"begin":"<f>","schema":{"type":"null"},"end":""}]})", options);
  EXPECT_TRUE(test::accepts(tag, "<t><f> perhaps</t>so <f>null it is"));
  EXPECT_FALSE(test::accepts(tag, "<t>so</t><f>1"));
}

TEST(Frame, CallsInsteadOfTheText) {
  AnswerFrame frame = thinking(false);
  frame.calls = kCallTag;
  frame.content_open = "[final]";
  const auto grammar = framed(frame);
  for (const char* text : {"[final]{\"ok\":true}", "<t>x</t>[final]{\"ok\":true}", "<f>null", "<t>x</t>\n<f>null"})
    EXPECT_TRUE(test::accepts(grammar, text)) << text;
  for (const char* text : {"{\"ok\":true}", "[final]<f>null", "<f>null{\"ok\":true}", "<f>1"})
    EXPECT_FALSE(test::accepts(grammar, text)) << text;
}

TEST(Frame, FreeTextHasNoSecondBlock) {
  const auto grammar = free_text(thinking(true));
  Matcher matcher(grammar);
  EXPECT_FALSE(matcher.accept(test::kEnd)) << "within the block";
  EXPECT_FALSE(matcher.accept(test::kTool));
  EXPECT_EQ(matcher.accept_bytes("so</t>"), 6u);
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.accept(test::kTool)) << "whatever the model may write";
  EXPECT_TRUE(matcher.accept(0xC3)) << "and broken characters";
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_EQ(matcher.accept_bytes("<t"), 2u);
  EXPECT_FALSE(matcher.accept('>'));
  EXPECT_TRUE(matcher.accept(test::kEnd));
  EXPECT_TRUE(test::accepts(free_text({}), "anything <t> at all"));
}

TEST(Frame, MarksThatAreSpecialTokens) {
  AnswerFrame frame;
  frame.reasoning = {.open = "<tool>", .close = "!", .inside = false, .never = {}};
  for (const auto& grammar : {framed(frame), free_text(frame)}) {
    Matcher matcher(grammar);
    EXPECT_TRUE(matcher.accept(test::kTool));
    EXPECT_EQ(matcher.accept_bytes("so!{\"ok\":true}"), 14u);
    EXPECT_TRUE(matcher.is_complete());
    EXPECT_FALSE(matcher.accept(test::kTool));
  }
}

}  // namespace
}  // namespace ingot::grammar
