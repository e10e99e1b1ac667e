#include "grammar/schema/number.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "grammar/char_set.h"

namespace ingot::grammar {
namespace {

std::vector<uint32_t> digit_values(std::string_view digits) {
  std::vector<uint32_t> out;
  for (const char digit : digits) out.push_back(static_cast<uint32_t>(digit - '0'));
  return out;
}

}  // namespace

Decimal parse_decimal(std::string_view text) {
  Decimal out;
  out.negative = text.starts_with('-');
  if (out.negative) text.remove_prefix(1);
  const size_t mark = text.find_first_of("eE");
  int exponent = mark == text.npos ? 0 : std::atoi(std::string(text.substr(mark + 1)).c_str());
  exponent = std::clamp(exponent, -1000, 1000);
  text = text.substr(0, mark);
  const size_t point = std::min(text.find('.'), text.size());
  std::string whole(text.substr(0, point)), fraction(text.substr(std::min(point + 1, text.size())));
  for (; exponent > 0; --exponent) {
    whole.push_back(fraction.empty() ? '0' : fraction[0]);
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  out.whole = whole.empty() ? "0" : whole;
  out.fraction = fraction;
  if (out.is_zero()) out.negative = false;
  return out;
}

ExprId NumberExprs::digits(char first, char last) {
  if (first > last) return ExprPool::kNothing;
  return pool_.bytes(ByteSet::range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
}

ExprId NumberExprs::whole() { return pool_.either({digits('0', '0'), pool_.concat(digits('1', '9'), many_digits(0))}); }

ExprId NumberExprs::any_fraction() { return pool_.optional(pool_.concat(pool_.literal("."), many_digits(1))); }

ExprId NumberExprs::signed_number(ExprId positive, ExprId negative) {
  return pool_.either({positive, pool_.concat(pool_.literal("-"), negative)});
}

ExprId NumberExprs::plain() {
  const ExprId magnitude = pool_.concat(whole(), any_fraction());
  return signed_number(magnitude, magnitude);
}

ExprId NumberExprs::with_digits(uint32_t whole, uint32_t fraction) {
  const ExprId front =
      pool_.either({digits('0', '0'), pool_.concat(digits('1', '9'), pool_.repeat(digits(), 0, whole - 1))});
  const ExprId back = pool_.optional(pool_.concat(pool_.literal("."), pool_.repeat(digits(), 1, fraction)));
  const ExprId magnitude = pool_.concat(front, back);
  return signed_number(magnitude, magnitude);
}

ExprId NumberExprs::any() {
  ByteSet mark, sign;
  for (const char c : {'e', 'E'}) mark.add(static_cast<uint8_t>(c));
  for (const char c : {'+', '-'}) sign.add(static_cast<uint8_t>(c));
  const ExprId exponent = pool_.concat({pool_.bytes(mark), pool_.optional(pool_.bytes(sign)), many_digits(1)});
  return pool_.concat(plain(), pool_.optional(exponent));
}

ExprId NumberExprs::integer(bool shortest) {
  ExprId magnitude = whole();
  if (!shortest)
    magnitude =
        pool_.concat(magnitude, pool_.optional(pool_.concat(pool_.literal("."), pool_.repeat(digits('0', '0'), 1))));
  return signed_number(magnitude, magnitude);
}

ExprId NumberExprs::equal(const Decimal& value, bool shortest) {
  const ExprId zeros = pool_.repeat(digits('0', '0'), value.fraction.empty() ? 1 : 0);
  ExprId magnitude = pool_.literal(value.whole);
  if (value.fraction.empty()) {
    if (!shortest) magnitude = pool_.concat(magnitude, pool_.optional(pool_.concat(pool_.literal("."), zeros)));
  } else {
    magnitude = pool_.concat({magnitude, pool_.literal("." + value.fraction), shortest ? ExprPool::kEmpty : zeros});
  }
  if (value.is_zero() && !shortest) return signed_number(magnitude, magnitude);
  return value.negative ? pool_.concat(pool_.literal("-"), magnitude) : magnitude;
}

// Numbers without sign that are at least, or above, the bound's size.
ExprId NumberExprs::magnitude_from(const Decimal& bound, bool above) {
  const size_t length = bound.whole.size();
  // A larger whole part: longer, or as long and larger.
  std::vector<ExprId> larger{pool_.concat(digits('1', '9'), many_digits(static_cast<uint32_t>(length)))};
  const DigitRange range{pool_, std::vector<uint32_t>(length, 0), std::vector<uint32_t>(length, 9),
                         [this](size_t, uint32_t first, uint32_t last) {
                           return digits(static_cast<char>('0' + first), static_cast<char>('0' + last));
                         }};
  std::vector<uint32_t> next = digit_values(bound.whole);
  size_t place = length;
  while (place > 0 && next[place - 1] == 9) next[--place] = 0;
  if (place > 0) {
    ++next[place - 1];
    larger.push_back(range.between(next, range.most));
  }
  // The same whole part: digit by digit.
  const ExprId not_zero = pool_.concat({many_digits(0), digits('1', '9'), many_digits(0)});
  ExprId tail = above ? not_zero : many_digits(0);
  for (size_t i = bound.fraction.size(); i-- > 0;) {
    const char digit = bound.fraction[i];
    tail = pool_.either({pool_.concat(digits(static_cast<char>(digit + 1), '9'), many_digits(0)),
                         pool_.concat(digits(digit, digit), tail)});
  }
  const ExprId same = bound.fraction.empty() && !above ? any_fraction() : pool_.concat(pool_.literal("."), tail);
  return pool_.either(
      {pool_.concat(pool_.either(std::move(larger)), any_fraction()), pool_.concat(pool_.literal(bound.whole), same)});
}

ExprId NumberExprs::magnitude_to(const Decimal& bound, bool below) {
  const size_t length = bound.whole.size();
  std::vector<ExprId> smaller;
  if (bound.whole != "0") {
    if (length > 1) {
      smaller.push_back(digits('0', '0'));
      smaller.push_back(pool_.concat(digits('1', '9'), pool_.repeat(digits(), 0, static_cast<uint32_t>(length - 2))));
    }
    const DigitRange range{pool_, std::vector<uint32_t>(length, 0), std::vector<uint32_t>(length, 9),
                           [this](size_t, uint32_t first, uint32_t last) {
                             return digits(static_cast<char>('0' + first), static_cast<char>('0' + last));
                           }};
    std::vector<uint32_t> last = digit_values(bound.whole), first(length, 0);
    if (length > 1) first[0] = 1;
    size_t place = length;
    while (place > 0 && last[place - 1] == 0) last[--place] = 9;
    --last[place - 1];
    smaller.push_back(range.between(first, last));
  }
  const ExprId zeros = pool_.repeat(digits('0', '0'), 0);
  std::vector<ExprId> same;  // what may follow the same whole part
  if (bound.fraction.empty()) {
    if (!below) same = {ExprPool::kEmpty, pool_.concat(pool_.literal("."), pool_.repeat(digits('0', '0'), 1))};
  } else {
    ExprId tail = below ? ExprPool::kNothing : zeros;
    for (size_t i = bound.fraction.size(); i-- > 0;) {
      const char digit = bound.fraction[i];
      tail = pool_.either({i > 0 ? ExprPool::kEmpty : ExprPool::kNothing,
                           pool_.concat(digits('0', static_cast<char>(digit - 1)), many_digits(0)),
                           pool_.concat(digits(digit, digit), tail)});
    }
    same = {ExprPool::kEmpty, pool_.concat(pool_.literal("."), tail)};
  }
  return pool_.either({pool_.concat(pool_.either(std::move(smaller)), any_fraction()),
                       pool_.concat(pool_.literal(bound.whole), pool_.either(std::move(same)))});
}

ExprId NumberExprs::at_least(const Decimal& bound, bool above) {
  const ExprId every = pool_.concat(whole(), any_fraction());
  if (bound.negative) return signed_number(every, magnitude_to(bound, above));
  const ExprId negative = bound.is_zero() && !above ? magnitude_to(bound, false) : ExprPool::kNothing;
  return signed_number(magnitude_from(bound, above), negative);
}

ExprId NumberExprs::at_most(const Decimal& bound, bool below) {
  const ExprId every = pool_.concat(whole(), any_fraction());
  if (!bound.negative && !bound.is_zero()) return signed_number(magnitude_to(bound, below), every);
  const ExprId positive = bound.is_zero() && !below ? magnitude_to(bound, false) : ExprPool::kNothing;
  return signed_number(positive, magnitude_from(bound, below));
}

ExprId NumberExprs::multiple_of(uint32_t divisor, uint32_t places) {
  const ExprId multiple = pool_.multiple(divisor, places);
  return pool_.both({plain(), signed_number(multiple, multiple)});
}

}  // namespace ingot::grammar
