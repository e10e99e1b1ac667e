#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

#include "text/jinja/args.h"
#include "text/jinja/strings.h"
#include "text/jinja/text.h"

#include <nlohmann/json.hpp>

namespace ingot::jinja {
namespace {

constexpr size_t kLinearDict = 8;  // up to this size a dict is searched entry by entry

void check_size(uint64_t weight, int depth) {
  if (weight > kMaxValueWeight) raise_limit("a value of the template grew over {} MiB", kMaxValueWeight >> 20);
  if (depth > kMaxValueDepth) raise_limit("values nest deeper than {} levels", kMaxValueDepth);
}

// Exact comparison of an integer with a double, as Python does it.
std::partial_ordering compare_mixed(int64_t i, double d) {
  if (std::isnan(d)) return std::partial_ordering::unordered;
  if (d >= 0x1p63) return std::partial_ordering::less;
  if (d < -0x1p63) return std::partial_ordering::greater;
  const int64_t whole = static_cast<int64_t>(d);
  if (i != whole) return i <=> whole;
  return 0.0 <=> d - static_cast<double>(whole);
}

std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.as_int() <=> b.as_int();
  if (a.is_real() && b.is_real()) return a.as_real() <=> b.as_real();
  if (a.is_real()) return 0 <=> compare_mixed(b.as_int(), a.as_real());
  return compare_mixed(a.as_int(), b.as_real());
}

// Raises for what Python cannot have as a key.
size_t hash(const Value& v) {
  switch (v.kind()) {
    case Kind::none: return 0x6e6f6e65;
    case Kind::boolean:
    case Kind::integer: return std::hash<int64_t>()(v.as_int());
    case Kind::real: {
      const double d = v.as_real();
      if (d >= -0x1p63 && d < 0x1p63 && d == std::floor(d)) return std::hash<int64_t>()(static_cast<int64_t>(d));
      return std::hash<double>()(d);
    }
    case Kind::string: return std::hash<std::string>()(v.text());
    case Kind::sequence: {
      if (!v.is_tuple()) break;
      size_t h = 0x345678;
      for (const Value& item : v.items()) h = h * 1000003 ^ hash(item);
      return h;
    }
    case Kind::dict: break;
    case Kind::undefined: return 0x756e64;
    case Kind::object: return std::hash<const void*>()(v.object());
  }
  raise("unhashable type: '{}'", type_name(v));
}

Value convert(const nlohmann::ordered_json& json, int level) {
  using Type = nlohmann::ordered_json::value_t;
  if (level > kMaxValueDepth) raise_limit("the input nests deeper than {} levels", kMaxValueDepth);
  switch (json.type()) {
    case Type::null: return Value();
    case Type::boolean: return Value(json.get<bool>());
    case Type::number_integer: return Value(json.get<int64_t>());
    case Type::number_unsigned: {
      const uint64_t u = json.get<uint64_t>();
      if (u > static_cast<uint64_t>(INT64_MAX)) raise("the number {} is over 63 bits", u);
      return Value(static_cast<int64_t>(u));
    }
    case Type::number_float: return Value(json.get<double>());
    case Type::string: return Value(json.get_ref<const std::string&>());
    case Type::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const auto& item : json) items.push_back(convert(item, level + 1));
      return Value::list(std::move(items));
    }
    case Type::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, value] : json.items()) dict->set(Value(key), convert(value, level + 1));
      return Value(std::shared_ptr<const Dict>(std::move(dict)));
    }
    default: raise("the input has a value that is not JSON text");
  }
}

}  // namespace

Value::Value(std::string text, bool markup) {
  check_size(text.size(), 0);
  data_ = std::make_shared<const Str>(std::move(text), markup);
}

Value Value::list(std::vector<Value> items) { return std::make_shared<const Seq>(Seq::Type::list, std::move(items)); }

Value Value::tuple(std::vector<Value> items) { return std::make_shared<const Seq>(Seq::Type::tuple, std::move(items)); }

Value Value::undefined(std::string message) {
  Value v;
  v.data_ = std::make_shared<const Undefined>(Undefined{std::move(message)});
  return v;
}

Value Value::missing(std::string_view name) { return undefined(fmt::format("{} is undefined", quote(name))); }

Value Value::from_json(const nlohmann::ordered_json& json) { return convert(json, 1); }

bool Value::is_list() const { return seq() != nullptr && seq()->type == Seq::Type::list; }
bool Value::is_tuple() const { return seq() != nullptr && seq()->type == Seq::Type::tuple; }
bool Value::is_markup() const { return is_string() && std::get<std::shared_ptr<const Str>>(data_)->markup; }
const std::string& Value::text() const { return std::get<std::shared_ptr<const Str>>(data_)->text; }
size_t Value::length() const { return std::get<std::shared_ptr<const Str>>(data_)->length; }

const Seq* Value::seq() const {
  const auto* s = std::get_if<std::shared_ptr<const Seq>>(&data_);
  return s == nullptr ? nullptr : s->get();
}

const std::vector<Value>& Value::items() const { return std::get<std::shared_ptr<const Seq>>(data_)->items; }

Object* Value::object() const {
  const auto* o = std::get_if<std::shared_ptr<Object>>(&data_);
  return o == nullptr ? nullptr : o->get();
}

bool Value::truthy() const {
  if (is_none()) return false;
  if (is_integral()) return as_int() != 0;
  if (is_real()) return as_real() != 0;
  return length_of(*this).value_or(1) != 0;
}

uint64_t Value::weight() const {
  switch (kind()) {
    case Kind::string: return 64 + text().size();
    case Kind::sequence: return seq()->weight;
    case Kind::dict: return dict().weight();
    case Kind::object: return 64;
    default: return 16;
  }
}

int Value::depth() const { return seq() != nullptr ? seq()->depth : is_dict() ? dict().depth() : 0; }

thread_local int64_t Footprint::live_ = 0;

Str::Str(std::string t, bool m)
    : text(std::move(t)), length(count_chars(text)), markup(m), footprint(sizeof(Str) + text.size()) {}

Seq::Seq(Type t, std::vector<Value> v)
    : items(std::move(v)), type(t), footprint(sizeof(Seq) + items.size() * sizeof(Value)) {
  for (const Value& item : items) {
    weight += item.weight();
    depth = std::max(depth, item.depth() + 1);
    check_size(weight, depth);
  }
}

size_t Dict::position(const Value& key, size_t h) const {
  if (entries_.size() <= kLinearDict) {
    for (size_t i = 0; i < entries_.size(); ++i)
      if (equal(entries_[i].first, key)) return i;
  } else {
    const auto [begin, end] = index_.equal_range(h);
    for (auto it = begin; it != end; ++it)
      if (equal(entries_[it->second].first, key)) return it->second;
  }
  return entries_.size();
}

void Dict::set(Value key, Value value) {
  const size_t h = hash(key);
  const size_t at = position(key, h);
  weight_ += key.weight() + value.weight();
  depth_ = std::max(depth_, 1 + std::max(key.depth(), value.depth()));
  check_size(weight_, depth_);
  if (at < entries_.size()) {
    entries_[at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  footprint_.grow(sizeof(Entry) + 64);  // with its part of the index
  if (entries_.size() == kLinearDict + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash(entries_[i].first), static_cast<uint32_t>(i));
  } else if (entries_.size() > kLinearDict) {
    index_.emplace(h, static_cast<uint32_t>(at));
  }
}

const Value* Dict::find(const Value& key) const {
  const size_t at = position(key, hash(key));
  return at < entries_.size() ? &entries_[at].second : nullptr;
}

bool Iter::can(const Value& v) { return v.is_string() || v.seq() != nullptr || v.is_dict() || v.is_undefined(); }

Iter::Iter(Value v) : value_(std::move(v)) {
  if (!can(value_)) raise("'{}' object is not iterable", type_name(value_));
}

bool Iter::next(Value& out) {
  if (const Seq* seq = value_.seq()) {
    size_t& at = seq->type == Seq::Type::generator ? seq->taken : at_;
    if (at >= seq->items.size()) return false;
    out = seq->items[at++];
  } else if (value_.is_dict()) {
    if (at_ >= value_.dict().size()) return false;
    out = value_.dict().entries()[at_++].first;
  } else {
    if (value_.is_undefined() || at_ >= value_.text().size()) return false;
    const size_t start = at_;
    next_char(value_.text(), at_);
    out = Value(value_.text().substr(start, at_ - start));
  }
  return true;
}

Value Object::call(Run&, Args) { raise("'{}' object is not callable", type_name()); }

std::string_view type_name(const Value& v) {
  static constexpr std::string_view kSequences[] = {"list",       "tuple", "dict_keys", "dict_values",
                                                    "dict_items", "range", "generator"};
  switch (v.kind()) {
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return v.is_markup() ? "Markup" : "str";
    case Kind::sequence: return kSequences[static_cast<size_t>(v.seq()->type)];
    case Kind::dict: return "dict";
    case Kind::undefined: return "Undefined";
    case Kind::object: return v.object()->type_name();
  }
  return "object";
}

std::vector<Value> to_vector(const Value& v) {
  std::vector<Value> items;
  uint64_t weight = 0;  // a character of a string is much heavier as a value
  Iter it(v);
  for (Value item; it.next(item); items.push_back(std::move(item))) check_size(weight += item.weight(), 0);
  return items;
}

std::optional<int64_t> length_of(const Value& v) {
  switch (v.kind()) {
    case Kind::string: return static_cast<int64_t>(v.length());
    case Kind::sequence:
      if (v.seq()->type == Seq::Type::generator) return std::nullopt;
      return static_cast<int64_t>(v.items().size());
    case Kind::dict: return static_cast<int64_t>(v.dict().size());
    case Kind::undefined: return 0;
    default: return std::nullopt;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string: return a.text() == b.text();
    case Kind::sequence:
      return a.seq() == b.seq() ||
             (a.seq()->type == b.seq()->type && a.seq()->type != Seq::Type::generator &&
              std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), equal));
    case Kind::dict:
      return &a.dict() == &b.dict() ||
             (a.dict().size() == b.dict().size() &&
              std::all_of(a.dict().entries().begin(), a.dict().entries().end(), [&b](const Dict::Entry& entry) {
                const Value* other = b.dict().find(entry.first);
                return other != nullptr && equal(entry.second, *other);
              }));
    case Kind::object: return a.object() == b.object();
    default: return true;  // None and None, undefined and undefined
  }
}

std::partial_ordering compare(const Value& a, const Value& b, std::string_view op) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text() <=> b.text();
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i], op);
    return x.size() <=> y.size();
  }
  raise("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

}  // namespace ingot::jinja
