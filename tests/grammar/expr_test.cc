#include "grammar/expr.h"

#include "helpers.h"
#include "soak.h"

namespace ingot::grammar {
namespace {

using test::Random;

// A random expression with its meaning told a second time, by trying every way to cut the text.
struct Model {
  enum class Op { letter, empty, concat, either, both, complement, repeat };
  Op op;
  char letter = 'a';
  std::vector<Model> parts = {};
  uint32_t least = 0, most = 0;

  bool matches(std::string_view text) const {
    switch (op) {
      case Op::letter: return text.size() == 1 && text[0] == letter;
      case Op::empty: return text.empty();
      case Op::concat:
        for (size_t cut = 0; cut <= text.size(); ++cut)
          if (parts[0].matches(text.substr(0, cut)) && parts[1].matches(text.substr(cut))) return true;
        return false;
      case Op::either: return parts[0].matches(text) || parts[1].matches(text);
      case Op::both: return parts[0].matches(text) && parts[1].matches(text);
      case Op::complement: return !parts[0].matches(text);
      case Op::repeat: return repeats(text, 0);
    }
    return false;
  }
  bool repeats(std::string_view text, uint32_t count) const {
    if (count >= least && text.empty()) return true;
    if (count >= most) return false;
    if (count < least && parts[0].matches("") && repeats(text, count + 1)) return true;
    for (size_t cut = 1; cut <= text.size(); ++cut)
      if (parts[0].matches(text.substr(0, cut)) && repeats(text.substr(cut), count + 1)) return true;
    return false;
  }
  ExprId build(ExprPool& pool) const {
    std::vector<ExprId> made;
    for (const Model& part : parts) made.push_back(part.build(pool));
    switch (op) {
      case Op::letter: return pool.literal({&letter, 1});
      case Op::empty: return ExprPool::kEmpty;
      case Op::concat: return pool.concat(made[0], made[1]);
      case Op::either: return pool.either(made);
      case Op::both: return pool.both(made);
      case Op::complement: return pool.complement(made[0]);
      case Op::repeat: return pool.repeat(made[0], least, most);
    }
    return 0;
  }
};

Model random_model(Random& random, int depth) {
  if (depth == 0)
    return {random.below(5) == 0 ? Model::Op::empty : Model::Op::letter, random.below(2) == 0 ? 'a' : 'b'};
  const auto op = static_cast<Model::Op>(random.below(7));
  Model model{op, random.below(2) == 0 ? 'a' : 'b'};
  const int count = op == Model::Op::letter || op == Model::Op::empty        ? 0
                    : op == Model::Op::complement || op == Model::Op::repeat ? 1
                                                                             : 2;
  for (int i = 0; i < count; ++i) model.parts.push_back(random_model(random, depth - 1));
  model.least = random.below(3);
  model.most = model.least + random.below(3);
  return model;
}

std::vector<std::string> short_texts(size_t longest) {
  std::vector<std::string> texts{""};
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].size() < longest)
      for (const char c : {'a', 'b'}) texts.push_back(texts[i] + c);
  return texts;
}

TEST(Expr, MeansWhatItsPartsMean) {
  const auto texts = short_texts(5);
  const int rounds = ingot::test::soak() ? 20000 : 400;
  Random random{1};
  for (int round = 0; round < rounds; ++round) {
    Budget budget{Limits{}};
    ExprPool pool(budget);
    const Model model = random_model(random, 3);
    const ExprId expr = model.build(pool);
    bool any = false;
    for (const std::string& text : texts) {
      const bool expected = model.matches(text);
      ASSERT_EQ(pool.matches(expr, text), expected) << "round " << round << ", text " << text;
      any = any || expected;
    }
    EXPECT_FALSE(any && pool.is_nothing(expr)) << round;
  }
}

TEST(Expr, EqualExpressionsHaveEqualNumbers) {
  Budget budget{Limits{}};
  ExprPool pool(budget);
  const ExprId a = pool.literal("a"), b = pool.literal("b"), abc = pool.literal("abc");
  EXPECT_EQ(pool.concat(pool.concat(a, b), pool.literal("c")), abc);
  EXPECT_EQ(pool.either({a, b}), pool.either({b, a, b}));
  EXPECT_EQ(pool.both({a, ExprPool::kAll}), a);
  EXPECT_EQ(pool.both({a, pool.complement(a)}), ExprPool::kNothing);
  EXPECT_EQ(pool.either({a, pool.complement(a)}), ExprPool::kAll);
  EXPECT_EQ(pool.complement(pool.complement(abc)), abc);
  EXPECT_EQ(pool.repeat(pool.repeat(a, 0), 0), pool.repeat(a, 0));
}

TEST(Expr, KnowsWhenNothingMatches) {
  Budget budget{Limits{}};
  ExprPool pool(budget);
  const ExprId a = pool.literal("a");
  // Even and odd lengths have nothing in common; multiples of 2 and 3 do.
  const ExprId even = pool.repeat(pool.literal("aa"), 1), odd = pool.concat(a, pool.repeat(pool.literal("aa"), 0));
  EXPECT_TRUE(pool.is_nothing(pool.both({even, odd})));
  EXPECT_FALSE(pool.is_nothing(pool.both({even, pool.repeat(pool.literal("aaa"), 1)})));
  EXPECT_TRUE(pool.is_nothing(pool.concat(a, pool.both({even, odd}))));
}

TEST(Expr, DerivativesHoldForAllBytesOfTheirClass) {
  Budget budget{Limits{}};
  ExprPool pool(budget);
  Random random{7};
  for (int round = 0; round < 200; ++round) {
    const ExprId expr = random_model(random, 3).build(pool);
    for (const int byte : {'a', 'b', 'c'}) {
      const auto step = pool.derive(expr, static_cast<uint8_t>(byte));
      ASSERT_TRUE(step.bytes.has(static_cast<uint8_t>(byte)));
      step.bytes.each([&](uint8_t other) { ASSERT_EQ(pool.derive(expr, other).next, step.next); });
    }
  }
}

TEST(Expr, AnyOfManyTexts) {
  Budget budget{Limits{}};
  ExprPool pool(budget);
  const std::vector<std::string> texts = {"", "a", "ab", "abc", "b", "bcd", "bce"};
  const ExprId expr = pool.literals(texts);
  for (const std::string& text : texts) EXPECT_TRUE(pool.matches(expr, text)) << text;
  for (const char* text : {"c", "bc", "abcd", "aa"}) EXPECT_FALSE(pool.matches(expr, text)) << text;
}

TEST(Expr, StaysWithinItsBudget) {
  Budget budget{Limits{.max_bytes = 100'000}};
  ExprPool pool(budget);
  EXPECT_THROW(pool.literal(std::string(2000, 'a') + "b"), OverBudget);
}

TEST(Expr, MultiplesByTheirDigits) {
  Budget budget{Limits{}};
  ExprPool pool(budget);
  for (const uint32_t divisor : {1u, 2u, 3u, 7u, 12u, 100u}) {
    const ExprId whole = pool.multiple(divisor, 0), cents = pool.multiple(divisor, 2);
    for (uint32_t value = 0; value < 1500; ++value) {
      EXPECT_EQ(pool.matches(whole, std::to_string(value)), value % divisor == 0) << value << " of " << divisor;
      const std::string decimal = fmt::format("{}.{:02}", value / 100, value % 100);
      EXPECT_EQ(pool.matches(cents, decimal), value % divisor == 0) << decimal << " of " << divisor << " hundredths";
      EXPECT_EQ(pool.matches(cents, decimal + "00"), value % divisor == 0);
      EXPECT_FALSE(pool.matches(cents, decimal + "1"));
    }
  }
}

}  // namespace
}  // namespace ingot::grammar
