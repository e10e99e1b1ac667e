#include "text/jinja/ops.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/run.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

const char* symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::add: return "+";
    case BinaryOp::sub: return "-";
    case BinaryOp::mul: return "*";
    case BinaryOp::div: return "/";
    case BinaryOp::floor_div: return "//";
    case BinaryOp::mod: return "%";
  }
  return "?";
}

[[noreturn]] void overflow(BinaryOp op, const Value& a, const Value& b) {
  raise("{} {} {} is over 63 bits", repr(a), symbol(op), repr(b));
}

double floor_mod(double a, double b) {
  const double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) return m + b;
  return m == 0 ? std::copysign(0.0, b) : m;
}

double floor_div(double a, double b) {
  const double m = std::fmod(a, b);
  double q = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(q);
  return q - whole > 0.5 ? whole + 1 : whole;
}

Value integer_op(BinaryOp op, const Value& a, const Value& b) {
  const int64_t x = a.as_int();
  const int64_t y = b.as_int();
  int64_t result = 0;
  bool over = false;
  switch (op) {
    case BinaryOp::add: over = __builtin_add_overflow(x, y, &result); break;
    case BinaryOp::sub: over = __builtin_sub_overflow(x, y, &result); break;
    case BinaryOp::mul: over = __builtin_mul_overflow(x, y, &result); break;
    default:
      if (y == 0) raise("integer division or modulo by zero");
      if (y == -1) {  // x / -1 overflows for the smallest x
        if (op == BinaryOp::mod) return 0;
        over = __builtin_sub_overflow(int64_t{0}, x, &result);
        break;
      }
      const int64_t quotient = x / y;
      const int64_t rest = x % y;
      const bool round_down = rest != 0 && (rest < 0) != (y < 0);
      result = op == BinaryOp::mod ? (round_down ? rest + y : rest) : (round_down ? quotient - 1 : quotient);
  }
  if (over) overflow(op, a, b);
  return result;
}

Value number_op(BinaryOp op, const Value& a, const Value& b) {
  if (op != BinaryOp::div && a.is_integral() && b.is_integral()) return integer_op(op, a, b);
  const double x = a.as_real();
  const double y = b.as_real();
  if (y == 0 && (op == BinaryOp::div || op == BinaryOp::floor_div || op == BinaryOp::mod)) raise("division by zero");
  switch (op) {
    case BinaryOp::add: return x + y;
    case BinaryOp::sub: return x - y;
    case BinaryOp::mul: return x * y;
    case BinaryOp::div: return x / y;
    case BinaryOp::floor_div: return floor_div(x, y);
    default: return floor_mod(x, y);
  }
}

Value repeat(const Value& v, int64_t times) {
  const uint64_t n = times > 0 ? static_cast<uint64_t>(times) : 0;
  const uint64_t each = v.is_string() ? v.text().size() : v.weight();
  if (n > 0 && each > kMaxValueWeight / n)
    raise_limit("repeating a value {} times makes it over {} MiB", times, kMaxValueWeight >> 20);
  if (v.is_string()) {
    std::string out;
    out.reserve(v.text().size() * n);
    for (uint64_t i = 0; i < n; ++i) out += v.text();
    return Value(std::move(out), v.is_markup());
  }
  std::vector<Value> items;
  items.reserve(v.items().size() * n);
  for (uint64_t i = 0; i < n; ++i) items.insert(items.end(), v.items().begin(), v.items().end());
  return v.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value concatenate(const Value& a, const Value& b) {
  if (a.is_markup() != b.is_markup()) {  // Markup escapes what is added to it
    return Value(
        (a.is_markup() ? a.text() : escape_html(a.text())) + (b.is_markup() ? b.text() : escape_html(b.text())), true);
  }
  std::string out;
  out.reserve(a.text().size() + b.text().size());
  out += a.text();
  out += b.text();
  return Value(std::move(out), a.is_markup());
}

bool is_indexed(const Value& v) {
  return v.is_string() || v.is_list() || v.is_tuple() || (v.seq() != nullptr && v.seq()->type == Seq::Type::range);
}

// container[key] of Python; nothing where Python raises a TypeError or LookupError.
std::optional<Value> subscript(const Value& container, const Value& key) {
  if (container.is_dict()) {
    if (key.is_list() || key.is_dict()) return std::nullopt;
    const Value* found = container.dict().find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!is_indexed(container) || !key.is_integral()) return std::nullopt;
  const int64_t length = *length_of(container);
  const int64_t index = key.as_int() < 0 ? key.as_int() + length : key.as_int();
  if (index < 0 || index >= length) return std::nullopt;
  if (container.is_string()) return Value(substring(container, index, 1));
  return container.items()[static_cast<size_t>(index)];
}

bool contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) raise("'in <string>' requires string as left operand, not {}", type_name(item));
    return find_text(container.text(), item.text()) != std::string::npos;
  }
  if (container.is_dict()) return container.dict().find(item) != nullptr;
  if (!Iter::can(container)) raise("argument of type '{}' is not iterable", type_name(container));
  Iter it(container);
  for (Value v; it.next(v);)
    if (equal(v, item)) return true;
  return false;
}

Value no_attribute(const Value& v, const std::string& name) {
  const std::string type = v.is_none() ? "None" : fmt::format("{} object", type_name(v));
  return Value::undefined(fmt::format("{} has no attribute {}", quote(type), quote(name)));
}

}  // namespace

Value apply(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::mod && a.is_string()) {
    if (a.is_markup()) raise_unsupported("% on a string out of the filter 'safe' is not supported");
    return format_percent(a.text(), b);
  }
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return number_op(op, a, b);
  if (op == BinaryOp::add) {
    if (a.is_string() && b.is_string()) return concatenate(a, b);
    if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return a.is_list() ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    if (a.is_string() || a.is_list() || a.is_tuple()) {
      const std::string_view type = a.is_string() ? "str" : type_name(a);
      raise("can only concatenate {0} (not \"{1}\") to {0}", type, type_name(b));
    }
  }
  if (op == BinaryOp::mul) {
    const auto repeatable = [](const Value& v) { return v.is_string() || v.is_list() || v.is_tuple(); };
    if (repeatable(a) && b.is_integral()) return repeat(a, b.as_int());
    if (a.is_integral() && repeatable(b)) return repeat(b, a.as_int());
    if (repeatable(a) || repeatable(b))
      raise("can't multiply sequence by non-int of type '{}'", type_name(repeatable(a) ? b : a));
  }
  raise("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b));
}

Value negate(const Value& v) {
  require_defined(v);
  if (v.is_real()) return -v.as_real();
  if (!v.is_integral()) raise("bad operand type for unary -: '{}'", type_name(v));
  return integer_op(BinaryOp::sub, Value(0), v);
}

bool compare(Run& run, Comparison comparison, const Value& a, const Value& b) {
  run.spend_comparing(a);
  run.spend_comparing(b);
  switch (comparison) {
    case Comparison::eq: return equal(a, b);
    case Comparison::ne: return !equal(a, b);
    case Comparison::lt: return compare(a, b, "<") < 0;
    case Comparison::le: return compare(a, b, "<=") <= 0;
    case Comparison::gt: return compare(a, b, ">") > 0;
    case Comparison::ge: return compare(a, b, ">=") >= 0;
    case Comparison::in: return contains(b, a);
    case Comparison::not_in: return !contains(b, a);
  }
  return false;
}

SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, int64_t length) {
  for (const Value* v : {&start, &stop, &step}) {
    if (!v->is_none() && !v->is_integral()) raise("slice indices must be integers or None or have an __index__ method");
  }
  SliceRange r{0, 0, step.is_none() ? 1 : step.as_int()};
  if (r.step == 0) raise("slice step cannot be zero");
  r.step = std::clamp<int64_t>(r.step, -(int64_t{1} << 40), int64_t{1} << 40);
  const bool down = r.step < 0;
  const int64_t low = down ? -1 : 0;
  const int64_t high = down ? length - 1 : length;
  const auto bound = [&](const Value& v, int64_t absent) {
    if (v.is_none()) return absent;
    int64_t i = v.as_int();
    if (i < 0) i = i < -length ? low : i + length;
    return std::clamp(i, low, std::max(low, high));
  };
  r.start = bound(start, down ? high : low);
  r.stop = bound(stop, down ? low : high);
  return r;
}

std::string substring(const Value& string, int64_t start, int64_t count) {
  const std::string& text = string.text();
  if (string.length() == text.size()) return text.substr(static_cast<size_t>(start), static_cast<size_t>(count));
  size_t pos = 0;
  for (int64_t i = 0; i < start; ++i) next_char(text, pos);
  const size_t begin = pos;
  for (int64_t i = 0; i < count && pos < text.size(); ++i) next_char(text, pos);
  return text.substr(begin, pos - begin);
}

Value slice(const Value& container, const Value& start, const Value& stop, const Value& step) {
  require_defined(container);
  if (container.is_dict()) raise("unhashable type: 'slice'");
  if (!is_indexed(container)) raise("'{}' object is not subscriptable", type_name(container));
  const SliceRange r = resolve_slice(start, stop, step, *length_of(container));
  if (container.is_string() && r.step == 1)
    return Value(substring(container, r.start, std::max<int64_t>(0, r.stop - r.start)));
  const auto cut = [&r](const auto& items) {
    std::remove_cvref_t<decltype(items)> out;
    for (int64_t i = r.start; r.step > 0 ? i < r.stop : i > r.stop; i += r.step)
      out.push_back(items[static_cast<size_t>(i)]);
    return out;
  };
  if (container.is_string()) return Value(encode(cut(decode(container.text()))));
  return Value(std::make_shared<const Seq>(container.seq()->type, cut(container.items())));
}

Value get_attribute(const Value& v, std::string_view name) {
  require_defined(v);
  if (auto found = python_attribute(v, name)) return *found;
  if (auto found = subscript(v, Value(name))) return *found;
  return no_attribute(v, std::string(name));
}

Value get_item(const Value& v, const Value& key) {
  require_defined(v);
  if (auto found = subscript(v, key)) return *found;
  if (key.is_string()) {
    if (auto found = python_attribute(v, key.text())) return *found;
    return no_attribute(v, key.text());
  }
  return Value::undefined(
      fmt::format("{} has no element {}", v.is_none() ? "None" : fmt::format("{} object", type_name(v)), repr(key)));
}

}  // namespace ingot::jinja
