#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

AddedToken token(int32_t id, std::string content) {
  AddedToken t;
  t.id = id;
  t.content = std::move(content);
  return t;
}

std::string show(const AddedTokenMatcher& matcher, std::string_view text, bool parse_special = true) {
  std::vector<AddedTokenMatcher::Piece> pieces;
  matcher.split(text, parse_special, pieces);
  std::string out;
  for (const auto& piece : pieces) {
    out += piece.id < 0 ? "[" : std::to_string(piece.id) + "[";
    out += text.substr(piece.begin, piece.end - piece.begin);
    out += "]";
  }
  return out;
}

AddedTokenMatcher make(const std::vector<AddedToken>& tokens) {
  AddedTokenMatcher matcher;
  for (const AddedToken& t : tokens) matcher.add(t, t.content);
  return matcher;
}

TEST(AddedTokens, LeftmostLongest) {
  const AddedTokenMatcher matcher = make({token(1, "ab"), token(2, "abcd"), token(3, "bcde"), token(4, "e")});
  EXPECT_EQ(show(matcher, "xabcx"), "[x]1[ab][cx]");
  EXPECT_EQ(show(matcher, "abcde"), "2[abcd]4[e]");
  EXPECT_EQ(show(matcher, "bcde"), "3[bcde]");
  EXPECT_EQ(show(matcher, "abcab"), "1[ab][c]1[ab]");
  EXPECT_EQ(show(matcher, ""), "");
  EXPECT_EQ(show(make({}), "x"), "[x]");
}

TEST(AddedTokens, SpecialTokensStayTextUnlessParsed) {
  AddedToken special = token(1, "<s>");
  special.special = true;
  const AddedTokenMatcher matcher = make({special, token(2, "<t>"), token(3, "s>")});
  EXPECT_EQ(show(matcher, "a<s><t>"), "[a]1[<s>]2[<t>]");
  // The special token's text is used up although it is not taken: nothing else matches inside it.
  EXPECT_EQ(show(matcher, "a<s><t>", false), "[a<s>]2[<t>]");
}

TEST(AddedTokens, StripsWhiteSpace) {
  AddedToken left = token(1, "<L>"), right = token(2, "<R>"), both = token(3, "<LR>");
  left.lstrip = right.rstrip = both.lstrip = both.rstrip = true;
  const AddedTokenMatcher matcher = make({left, right, both});
  EXPECT_EQ(show(matcher, "a \u3000<L> b"), "[a]1[ \u3000<L>][ b]");
  EXPECT_EQ(show(matcher, "a <R>\u00a0\n b"), "[a ]2[<R>\u00a0\n ][b]");
  EXPECT_EQ(show(matcher, "<R>  <L>"), "2[<R>  ]1[<L>]");
  EXPECT_EQ(show(matcher, "<LR>  <LR>"), "3[<LR>  ]3[<LR>]");
  EXPECT_EQ(show(matcher, "  <L>"), "1[  <L>]");
}

TEST(AddedTokens, SingleWord) {
  AddedToken word = token(1, "yes");
  word.single_word = true;
  const AddedTokenMatcher matcher = make({word});
  EXPECT_EQ(show(matcher, "yes"), "1[yes]");
  EXPECT_EQ(show(matcher, "(yes)"), "[(]1[yes][)]");
  for (const char* text : {"yesx", "eyes", "yes_", "yes1", "\u00e9yes", "yes\u4e2d", "yes\u0301"})
    EXPECT_EQ(show(matcher, text), "[" + std::string(text) + "]");
}

TEST(AddedTokens, ManyRepeatedStartsStayQuick) {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "<|im_start|";
  EXPECT_EQ(show(make({token(1, "<|im_start|>")}), text), "[" + text + "]");
}

}  // namespace
}  // namespace ingot
