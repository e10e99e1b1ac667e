#include "grammar/schema/number.h"

#include <cstdlib>

#include "helpers.h"

namespace ingot::grammar {
namespace {

const std::vector<std::string> kNumbers = {"0",     "1",    "2",    "5",     "9",     "10",   "11",    "99",   "100",
                                           "101",   "123",  "999",  "1000",  "0.1",   "0.5",  "0.05",  "0.50", "0.500",
                                           "1.5",   "1.49", "1.51", "1.500", "12.34", "9.99", "10.01", "0.0",  "1.0",
                                           "123.0", "5.01", "4.99", "5.00",  "99.9",  "100.1"};

std::vector<std::string> with_signs() {
  std::vector<std::string> out;
  for (const std::string& number : kNumbers) {
    out.push_back(number);
    out.push_back("-" + number);
  }
  return out;
}

class Numbers : public testing::Test {
 protected:
  Budget budget{Limits{}};
  ExprPool pool{budget};
  NumberExprs numbers{pool};
};

TEST_F(Numbers, BoundsAreThoseOfTheirValues) {
  for (const std::string& bound : with_signs()) {
    const Decimal decimal = parse_decimal(bound);
    const double limit = std::atof(bound.c_str());
    const ExprId from = numbers.at_least(decimal, false), above = numbers.at_least(decimal, true);
    const ExprId to = numbers.at_most(decimal, false), below = numbers.at_most(decimal, true);
    for (const std::string& text : with_signs()) {
      const double value = std::atof(text.c_str());
      EXPECT_EQ(pool.matches(from, text), value >= limit) << text << " >= " << bound;
      EXPECT_EQ(pool.matches(above, text), value > limit) << text << " > " << bound;
      EXPECT_EQ(pool.matches(to, text), value <= limit) << text << " <= " << bound;
      EXPECT_EQ(pool.matches(below, text), value < limit) << text << " < " << bound;
      EXPECT_EQ(pool.matches(numbers.equal(decimal, false), text), value == limit) << text << " == " << bound;
    }
  }
}

TEST_F(Numbers, OnlyNumbersOfJson) {
  const ExprId every[] = {numbers.plain(), numbers.at_least(parse_decimal("-1e5"), false),
                          numbers.at_most(parse_decimal("1e5"), false), numbers.multiple_of(1, 3)};
  for (const ExprId expr : every)
    for (const char* text : {"", "-", "01", "1.", ".5", "+1", "1.2.3", "--1", "00", "-01", "1e5", "0x1", "1 "})
      EXPECT_FALSE(pool.matches(expr, text)) << text;
  for (const char* text : {"1e5", "1E+05", "-0.5e-3", "0"}) EXPECT_TRUE(pool.matches(numbers.any(), text)) << text;
  for (const char* text : {"1e", "e5", "1e+"}) EXPECT_FALSE(pool.matches(numbers.any(), text)) << text;
}

TEST_F(Numbers, Integers) {
  for (const char* text : {"0", "-0", "12", "-7"}) {
    EXPECT_TRUE(pool.matches(numbers.integer(true), text)) << text;
    EXPECT_TRUE(pool.matches(numbers.integer(false), text)) << text;
  }
  EXPECT_TRUE(pool.matches(numbers.integer(false), "12.00"));
  EXPECT_FALSE(pool.matches(numbers.integer(true), "12.0"));
  EXPECT_FALSE(pool.matches(numbers.integer(false), "12.5"));
}

TEST(Decimal, OfTextsWithExponents) {
  const auto show = [](const char* text) {
    const Decimal d = parse_decimal(text);
    return std::string(d.negative ? "-" : "") + d.whole + "." + d.fraction;
  };
  EXPECT_EQ(show("12.50"), "12.5");
  EXPECT_EQ(show("-1e-3"), "-0.001");
  EXPECT_EQ(show("1.25e+1"), "12.5");
  EXPECT_EQ(show("1e3"), "1000.");
  EXPECT_EQ(show("-0.0"), "0.");
  EXPECT_EQ(show("120e-1"), "12.");
}

}  // namespace
}  // namespace ingot::grammar
