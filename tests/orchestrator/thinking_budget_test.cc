#include "orchestrator/thinking_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ingot {
namespace {

AnswerFrame::Reasoning block(bool inside) {
  return {.open = "<think>", .close = "</think>", .inside = inside, .never = {}};
}

// How many tokens it took until the budget was spent; -1: it never was.
int spent_after(ThinkingBudget budget, const std::vector<std::string>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (budget.spent()) return static_cast<int>(i);
    budget.take(tokens[i]);
  }
  return budget.spent() ? static_cast<int>(tokens.size()) : -1;
}

TEST(ThinkingBudget, CountsWhatIsInTheBlock) {
  EXPECT_EQ(spent_after({block(true), 0}, {}), 0);
  EXPECT_EQ(spent_after({block(true), 2}, {"a", "b", "c"}), 2);
  EXPECT_EQ(spent_after({block(false), 2}, {"<", "think", ">", "a", "b", "c"}), 5);
  EXPECT_EQ(spent_after({block(false), 0}, {"\xff<think>", "a"}), 1) << "a special token, with its mark";
  EXPECT_EQ(spent_after({block(false), 0}, {"<think>\n", "a"}), 1);
}

TEST(ThinkingBudget, IsOverWhereTheBlockIs) {
  EXPECT_EQ(spent_after({block(true), 3}, {"a", "</think>", "b", "c", "d"}), -1);
  EXPECT_EQ(spent_after({block(true), 9}, {"a", "</thi", "nk", ">\n", "b", "c", "d", "e", "f", "g", "h"}), -1);
  EXPECT_EQ(spent_after({block(true), 1}, {"a</think>b", "c"}), -1);
  EXPECT_EQ(spent_after({block(false), 1}, {"<think></think>", "c", "d"}), -1);
  EXPECT_EQ(spent_after({block(false), 1}, {"Hello", "<think>", "c", "d"}), -1) << "no block at the beginning";
  EXPECT_EQ(spent_after({block(false), 1}, {"<", "b>", "c", "d"}), -1);
}

TEST(ThinkingBudget, CompletesAMarkThatHasBegun) {
  const auto missing = [](const std::vector<std::string>& tokens) {
    ThinkingBudget budget(block(true), 0);
    for (const std::string& token : tokens) budget.take(token);
    return budget.missing();
  };
  EXPECT_EQ(missing({}), "</think>");
  EXPECT_EQ(missing({"so"}), "</think>");
  EXPECT_EQ(missing({"so", "</", "th"}), "ink>");
  EXPECT_EQ(missing({"a </think", "</"}), "think>");
  EXPECT_EQ(missing({"a </thinker"}), "</think>");
}

}  // namespace
}  // namespace ingot
