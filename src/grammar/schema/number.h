#pragma once

#include <string>
#include <string_view>

#include "grammar/expr.h"

namespace ingot::grammar {

// A number as it is written: digits before the point (no leading zero, but "0") and behind it (no trailing zero).
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  Decimal minus() const { return {!negative && !is_zero(), whole, fraction}; }
};
// From the text of a JSON number; its exponent must be within +-1000.
Decimal parse_decimal(std::string_view text);

// Texts of JSON numbers without exponent, by their value.
class NumberExprs {
 public:
  explicit NumberExprs(ExprPool& pool) : pool_(pool) {}

  ExprId any();                                           // with exponents
  ExprId plain();                                         // without
  ExprId with_digits(uint32_t whole, uint32_t fraction);  // likewise, of at most so many digits
  ExprId integer(bool shortest);                          // 1, and unless shortest 1.0
  ExprId equal(const Decimal& value, bool shortest);
  ExprId at_least(const Decimal& bound, bool above);  // above: more than it
  ExprId at_most(const Decimal& bound, bool below);
  ExprId multiple_of(uint32_t divisor, uint32_t places);

 private:
  ExprId digits(char first = '0', char last = '9');
  ExprId many_digits(uint32_t least) { return pool_.repeat(digits(), least); }
  ExprId whole();
  ExprId any_fraction();
  ExprId magnitude_from(const Decimal& bound, bool above);
  ExprId magnitude_to(const Decimal& bound, bool below);
  ExprId signed_number(ExprId positive, ExprId negative);

  ExprPool& pool_;
};

}  // namespace ingot::grammar
