#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expr.h"

namespace ingot::grammar {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Unicode scalar values as sorted, disjoint ranges, both ends included. Surrogates are never in it.
class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::vector<std::pair<char32_t, char32_t>> ranges);
  CharSet(std::initializer_list<std::pair<char32_t, char32_t>> ranges);
  static CharSet all();

  void add(char32_t first, char32_t last);
  void add(const CharSet& other);
  CharSet complement() const;
  bool has(char32_t code) const;
  const std::vector<std::pair<char32_t, char32_t>>& ranges() const { return ranges_; }
  auto operator<=>(const CharSet&) const = default;

 private:
  void tidy();
  std::vector<std::pair<char32_t, char32_t>> ranges_;
};

// The scalar values of a general category, by its short or long name ("Lu", "L", "Letter"); nullptr: no such name.
const CharSet* category(std::string_view name);

// Texts as bytes: plain UTF-8, or what stands between the quotes of a JSON string. There a character has its plain form
// wherever JSON allows that; a control character, a quote and a backslash are escaped, and whatever is not ASCII may be
// written as \uXXXX too. So that one set of spellings serves every pattern, and complements are exact.
enum class Encoding { text, json };

class CharEncoder {
 public:
  CharEncoder(ExprPool& pool, Encoding encoding) : pool_(pool), encoding_(encoding) {}

  ExprPool& pool() { return pool_; }
  ExprId chars(const CharSet& set);       // one character of the set
  ExprId literal(std::string_view text);  // valid UTF-8
  ExprId any();                           // any one character
  ExprId any_text() { return pool_.repeat(any(), 0); }

 private:
  ExprId utf8(const CharSet& set);
  ExprId json_escapes(char32_t first, char32_t last);

  ExprPool& pool_;
  Encoding encoding_;
  std::map<CharSet, ExprId> known_;
};

// Strings of digits between two of the same length, in the order of a dictionary. `least` and `most` bound every digit
// but those at the two ends; `leaf` is the expression of digits first..last at a place.
struct DigitRange {
  ExprPool& pool;
  std::vector<uint32_t> least, most;
  std::function<ExprId(size_t place, uint32_t first, uint32_t last)> leaf;

  ExprId between(const std::vector<uint32_t>& first, const std::vector<uint32_t>& last) const;

 private:
  ExprId from(const std::vector<uint32_t>& first, const std::vector<uint32_t>& last, size_t place) const;
};

// Exactly four hexadecimal digits, of either case, with a value from first to last.
ExprId hex4(ExprPool& pool, uint32_t first, uint32_t last);

}  // namespace ingot::grammar
