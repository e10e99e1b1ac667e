#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/text.h"
#include "text/jinja/utf8.h"

namespace ingot::jinja {
namespace {

constexpr size_t kLinearDict = 8;  // up to this size a dict is searched entry by entry

void check_size(uint64_t weight, int depth) {
  if (weight > kMaxValueWeight) raise(Fault::limit, "a value of the template grew over {} MiB", kMaxValueWeight >> 20);
  if (depth > kMaxValueDepth) raise(Fault::limit, "values nest deeper than {} levels", kMaxValueDepth);
}

class SeqIter : public Iter {
 public:
  explicit SeqIter(Value v) : value_(std::move(v)) {}
  bool next(Value& out) override {
    const auto& items = value_.items();
    if (index_ >= items.size()) return false;
    out = items[index_++];
    return true;
  }

 private:
  Value value_;
  size_t index_ = 0;
};

class StringIter : public Iter {
 public:
  explicit StringIter(Value v) : value_(std::move(v)) {}
  bool next(Value& out) override {
    const std::string& text = value_.text();
    if (pos_ >= text.size()) return false;
    const size_t start = pos_;
    next_char(text, pos_);
    out = Value(text.substr(start, pos_ - start));
    return true;
  }

 private:
  Value value_;
  size_t pos_ = 0;
};

class KeyIter : public Iter {
 public:
  explicit KeyIter(std::shared_ptr<const Dict> dict) : dict_(std::move(dict)) {}
  bool next(Value& out) override {
    if (index_ >= dict_->size()) return false;
    out = dict_->entries()[index_++].first;
    return true;
  }

 private:
  std::shared_ptr<const Dict> dict_;
  size_t index_ = 0;
};

class EmptyIter : public Iter {
 public:
  bool next(Value&) override { return false; }
};

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

}  // namespace

Value::Value(std::string text, bool markup) {
  check_size(text.size(), 0);
  data_ = std::make_shared<const Str>(std::move(text), markup);
}

Value Value::list(std::vector<Value> items) { return std::make_shared<const Seq>(Seq::Type::list, std::move(items)); }

Value Value::tuple(std::vector<Value> items) { return std::make_shared<const Seq>(Seq::Type::tuple, std::move(items)); }

Value Value::undefined(std::string message, Fault fault) {
  return std::make_shared<const Undefined>(Undefined{std::move(message), fault});
}

Value Value::missing(std::string_view name) { return undefined(fmt::format("{} is undefined", quote(name))); }

bool Value::is_list() const {
  const Seq* s = seq();
  return s != nullptr && s->type == Seq::Type::list;
}

bool Value::is_tuple() const {
  const Seq* s = seq();
  return s != nullptr && s->type != Seq::Type::list;
}

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
  switch (kind()) {
    case Kind::none:
    case Kind::undefined: return false;
    case Kind::boolean:
    case Kind::integer: return as_int() != 0;
    case Kind::real: return as_real() != 0;
    case Kind::string: return !text().empty();
    case Kind::sequence: return !items().empty();
    case Kind::dict: return dict().size() != 0;
    case Kind::object: {
      const auto length = object()->length();
      return !length || *length != 0;
    }
  }
  return false;
}

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::none: return true;
    case Kind::boolean:
    case Kind::integer: return as_int() == other.as_int();
    case Kind::real: return as_real() == other.as_real();
    // Python interns literals and keys, so equal short strings mostly are the same object there.
    case Kind::string: return text() == other.text() && is_markup() == other.is_markup();
    case Kind::sequence: return seq() == other.seq();
    case Kind::dict: return &dict() == &other.dict();
    case Kind::undefined: return &undefined_info() == &other.undefined_info();
    case Kind::object: return object() == other.object();
  }
  return false;
}

uint64_t Value::weight() const {
  switch (kind()) {
    case Kind::string: return 64 + text().size();
    case Kind::sequence: return seq()->weight;
    case Kind::dict: return dict().weight();
    case Kind::object: return object()->weight();
    default: return 16;
  }
}

int Value::depth() const {
  switch (kind()) {
    case Kind::sequence: return seq()->depth;
    case Kind::dict: return dict().depth();
    case Kind::object: return object()->depth();
    default: return 0;
  }
}

thread_local int64_t Footprint::live_ = 0;

Str::Str(std::string t, bool m)
    : text(std::move(t)), length(count_chars(text)), markup(m), footprint(sizeof(Str) + text.size()) {}

Seq::Seq(Type t, std::vector<Value> v)
    : items(std::move(v)), type(t), weight(64), depth(0), footprint(sizeof(Seq) + items.size() * sizeof(Value)) {
  for (const Value& item : items) {
    weight += item.weight();
    depth = std::max(depth, item.depth());
    check_size(weight, ++depth);
    --depth;
  }
  ++depth;
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

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() > kLinearDict) return find(Value(key));
  for (const Entry& e : entries_)
    if (e.first.is_string() && e.first.text() == key) return &e.second;
  return nullptr;
}

std::optional<Value> Args::take_keyword(std::string_view name) {
  std::optional<Value> taken;
  const auto it = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
  if (it == keywords.end()) return taken;
  taken = it->second;
  keywords.erase(it);
  return taken;
}

Object::Object(int depth, uint64_t weight) : depth_(depth), weight_(weight) { check_size(weight, depth); }

Value Object::call(Interpreter&, Args) { raise(Fault::type_error, "'{}' object is not callable", type_name()); }

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return v.is_markup() ? "Markup" : "str";
    case Kind::sequence: return v.is_list() ? "list" : v.seq()->type == Seq::Type::group ? "_GroupTuple" : "tuple";
    case Kind::dict: return "dict";
    case Kind::undefined: return "Undefined";
    case Kind::object: return v.object()->type_name();
  }
  return "object";
}

std::string describe_type(const Value& v) {
  if (v.is_none()) return "None";
  std::string_view module;
  if (v.is_markup()) module = "markupsafe";
  if (const Object* o = v.object()) module = o->module();
  if (module.empty()) return fmt::format("{} object", type_name(v));
  return fmt::format("{}.{} object", module, type_name(v));
}

std::unique_ptr<Iter> try_iterate(const Value& v) {
  switch (v.kind()) {
    case Kind::string: return std::make_unique<StringIter>(v);
    case Kind::sequence: return std::make_unique<SeqIter>(v);
    case Kind::dict: return std::make_unique<KeyIter>(v.dict_ref());
    case Kind::undefined: return std::make_unique<EmptyIter>();
    case Kind::object: return v.object()->iterate();
    default: return nullptr;
  }
}

std::unique_ptr<Iter> iterate(const Value& v) {
  auto it = try_iterate(v);
  if (!it) raise(Fault::type_error, "'{}' object is not iterable", type_name(v));
  return it;
}

std::vector<Value> to_vector(const Value& v) {
  if (const Seq* s = v.seq()) return s->items;
  std::vector<Value> items;
  uint64_t weight = 0;
  const auto it = iterate(v);
  for (Value item; it->next(item);) {
    weight += item.weight();
    check_size(weight, 0);
    items.push_back(std::move(item));
  }
  return items;
}

std::optional<int64_t> length_of(const Value& v) {
  switch (v.kind()) {
    case Kind::string: return static_cast<int64_t>(v.length());
    case Kind::sequence: return static_cast<int64_t>(v.items().size());
    case Kind::dict: return static_cast<int64_t>(v.dict().size());
    case Kind::undefined: return 0;
    case Kind::object: return v.object()->length();
    default: return std::nullopt;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::string: return a.text() == b.text();
    case Kind::sequence: {
      if (a.is_list() != b.is_list() || a.items().size() != b.items().size()) return false;
      return a.seq() == b.seq() || std::equal(a.items().begin(), a.items().end(), b.items().begin(), equal);
    }
    case Kind::dict: {
      if (&a.dict() == &b.dict()) return true;
      if (a.dict().size() != b.dict().size()) return false;
      for (const auto& [key, value] : a.dict().entries()) {
        const Value* other = b.dict().find(key);
        if (other == nullptr || !equal(value, *other)) return false;
      }
      return true;
    }
    case Kind::object: return a.object()->equals(*b.object());
    default: return true;  // None and None, undefined and undefined
  }
}

std::partial_ordering compare(const Value& a, const Value& b, std::string_view op) {
  require_defined(a);
  require_defined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text() <=> b.text();
  if (a.seq() != nullptr && b.seq() != nullptr && a.is_list() == b.is_list()) {
    const auto& x = a.items();
    const auto& y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i], op);
    return x.size() <=> y.size();
  }
  raise(Fault::type_error, "'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

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
      if (v.is_list()) break;
      size_t h = 0x345678;
      for (const Value& item : v.items()) h = h * 1000003 ^ hash(item);
      return h;
    }
    case Kind::dict: break;
    case Kind::undefined: return 0x756e64;
    case Kind::object: return std::hash<const void*>()(v.object());
  }
  raise(Fault::type_error, "unhashable type: '{}'", type_name(v));
}

void fail_undefined(const Value& v) { throw Raise(v.undefined_info().fault, v.undefined_info().message); }

}  // namespace ingot::jinja
