#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "text/jinja/filters.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

// Python's float(text); nothing when it is not a number.
std::optional<double> parse_real(std::string_view text) {
  std::string digits;
  text = strip(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i - 1])) != 0 &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1])) != 0;
    if (text[i] == '_' && between) continue;
    digits += text[i];
  }
  std::string lower = to_lower(digits);
  const bool negative = lower.starts_with("-");
  if (negative || lower.starts_with("+")) lower.erase(0, 1);
  if (lower == "inf" || lower == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (lower == "nan") return std::nan("");
  if (lower.empty() || lower.find_first_not_of("0123456789.e+-") != lower.npos || lower[0] == '+' || lower[0] == '-')
    return std::nullopt;
  double d = 0;
  const auto result = std::from_chars(lower.data(), lower.data() + lower.size(), d);
  if (result.ptr != lower.data() + lower.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) d = std::strtod(lower.c_str(), nullptr);
  return negative ? -d : d;
}

// Python's int(text, base); nothing when it is not a number.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  std::string digits(strip(text));
  bool negative = false;
  if (digits.starts_with("-") || digits.starts_with("+")) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  const auto has_prefix = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  for (const auto& [letter, prefix_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!has_prefix(letter) || (base != prefix_base && base != 0)) continue;
    base = prefix_base;
    digits.erase(0, 2);
    if (digits.starts_with("_")) digits.erase(0, 1);
    break;
  }
  if (base == 0) {
    if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of("0_") != digits.npos) return std::nullopt;
    base = 10;
  }
  if (digits.empty() || digits.front() == '_' || digits.back() == '_' || digits.find("__") != digits.npos)
    return std::nullopt;
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  if (negative) digits.insert(0, 1, '-');
  int64_t n = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), n, static_cast<int>(base));
  if (result.ptr != digits.data() + digits.size() || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) raise(Fault::overflow, "the number {} is over 63 bits", quote(text));
  return n;
}

std::optional<int64_t> truncated(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 0x1p63) raise(Fault::overflow, "the number {} is over 63 bits", real_text(d));
  return static_cast<int64_t>(d);
}

Value to_int(Interpreter&, Args& args) {
  const Params p("int", args, {"value", "default", "base"}, 1);
  const Value& v = p.at(0);
  require_defined(v);
  if (v.is_integral()) return v.as_int();
  if (v.is_string()) {
    if (auto n = parse_integer(v.text(), p.integer(2, 10))) return *n;
    if (auto d = parse_real(v.text()))
      if (auto n = truncated(*d)) return *n;
  }
  if (v.is_real()) {
    // int(inf) raises an OverflowError that jinja2 does not catch.
    if (std::isinf(v.as_real())) raise(Fault::overflow, "cannot convert float infinity to integer");
    if (auto n = truncated(v.as_real())) return *n;
  }
  return p.get(1, Value(0));
}

Value to_real(Interpreter&, Args& args) {
  const Params p("float", args, {"value", "default"}, 1);
  const Value& v = p.at(0);
  require_defined(v);
  if (v.is_number()) return v.as_real();
  if (v.is_string())
    if (auto d = parse_real(v.text())) return *d;
  return p.get(1, Value(0.0));
}

Value absolute(Interpreter&, Args& args) {
  const Params p("abs", args, {"x"}, 1);
  const Value& v = p.at(0);
  if (v.is_real()) return std::fabs(v.as_real());
  if (!v.is_integral()) raise(Fault::type_error, "bad operand type for abs(): '{}'", type_name(v));
  return v.as_int() < 0 ? negate(v) : Value(v.as_int());
}

int64_t power_of_ten(int64_t exponent) {
  int64_t power = 1;
  for (int64_t i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// round(value, precision), which goes to the even neighbour when in the middle.
Value round_half_even(const Value& v, int64_t precision) {
  if (v.is_integral()) {
    if (precision >= 0) return v.as_int();
    if (precision < -18) return 0;
    const int64_t unit = power_of_ten(-precision);
    const int64_t rest = ((v.as_int() % unit) + unit) % unit;
    int64_t result = 0;
    bool over = __builtin_sub_overflow(v.as_int(), rest, &result);
    const bool up = rest > unit - rest || (rest == unit - rest && (result / unit) % 2 != 0);
    over = over || (up && __builtin_add_overflow(result, unit, &result));
    if (over) raise(Fault::overflow, "rounding {} is over 63 bits", v.as_int());
    return result;
  }
  const double d = v.as_real();
  if (!std::isfinite(d) || precision > 323) return d;
  if (precision < -308) return std::copysign(0.0, d);
  if (precision >= 0) return std::strtod(fmt::format("{:.{}f}", d, static_cast<int>(precision)).c_str(), nullptr);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(d / unit) * unit;
}

Value round_to(Interpreter&, Args& args) {
  const Params p("round", args, {"value", "precision", "method"}, 1);
  const Value method = p.get(2, Value("common"));
  const std::string name = method.is_string() ? method.text() : "";
  if (name != "common" && name != "ceil" && name != "floor")
    raise(Fault::runtime_error, "method must be common, ceil or floor");
  const Value& v = p.at(0);
  if (!v.is_number()) raise(Fault::type_error, "type {} doesn't define __round__ method", type_name(v));
  const int64_t precision = p.integer(1, 0);
  if (name == "common") return round_half_even(v, precision);
  const Value unit = apply(BinaryOp::pow, Value(10), Value(precision));
  const double scaled = apply(BinaryOp::mul, v, unit).as_real();
  const auto whole = truncated(name == "ceil" ? std::ceil(scaled) : std::floor(scaled));
  if (!whole) raise(Fault::overflow, "cannot round {}", real_text(scaled));
  return apply(BinaryOp::div, Value(*whole), unit);
}

Value filesizeformat(Interpreter&, Args& args) {
  const Params p("filesizeformat", args, {"value", "binary"}, 1);
  require_defined(p.at(0));
  const bool binary = p.truthy(1, false);
  std::optional<double> bytes;
  if (p.at(0).is_number()) bytes = p.at(0).as_real();
  if (p.at(0).is_string()) bytes = parse_real(p.at(0).text());
  if (!bytes) raise(Fault::type_error, "filesizeformat needs a number, not {}", repr(p.at(0)));
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return "1 Byte";
  if (*bytes < base) return Value(fmt::format("{:.0f} Bytes", std::trunc(*bytes)));
  double unit = base;
  std::string_view prefix;
  for (std::string_view letter : {"k", "M", "G", "T", "P", "E", "Z", "Y"}) {
    prefix = letter;
    unit *= base;
    if (*bytes < unit) break;
  }
  const std::string name = !binary ? std::string(prefix) + "B" : (prefix == "k" ? "K" : std::string(prefix)) + "iB";
  return Value(fmt::format("{:.1f} {}", base * *bytes / unit, name));
}

constexpr FilterEntry kNumberFilters[] = {
    {"abs", absolute}, {"filesizeformat", filesizeformat}, {"float", to_real}, {"int", to_int}, {"round", round_to},
};

}  // namespace

Table<FilterEntry> number_filters() { return {std::begin(kNumberFilters), std::end(kNumberFilters)}; }

}  // namespace ingot::jinja
