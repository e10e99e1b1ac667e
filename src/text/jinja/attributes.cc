#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods.h"
#include "text/jinja/ops.h"
#include "text/jinja/text.h"

// What Python's getattr() finds on the values a template can have.
namespace ingot::jinja {
namespace {

Value dict_get(Interpreter& interpreter, const Value& self, Args& args) {
  const Params p("get", args, {"key", "default"}, 1);
  interpreter.spend_comparing(p.at(0));
  const Value* found = self.dict().find(p.at(0));
  return found != nullptr ? *found : p.get(1, Value());
}

template <DictView::Part Part>
Value dict_view(Interpreter&, const Value& self, Args& args) {
  Params("dict method", args, {}, 0);
  return Value(std::make_shared<DictView>(self.dict_ref(), Part));
}

Value copy(Interpreter&, const Value& self, Args& args) {
  Params("copy", args, {}, 0);
  if (self.is_list()) return Value::list(self.items());
  return Value(std::make_shared<const Dict>(self.dict()));
}

Value sequence_count(Interpreter& interpreter, const Value& self, Args& args) {
  const Params p("count", args, {"value"}, 1);
  interpreter.spend_comparing(self);
  const auto& items = self.items();
  return static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& v) { return equal(v, p.at(0)); }));
}

Value sequence_index(Interpreter& interpreter, const Value& self, Args& args) {
  const Params p("index", args, {"value", "start", "stop"}, 1);
  interpreter.spend_comparing(self);
  const auto& items = self.items();
  const SliceRange r = resolve_slice(p.get(1, Value()), p.get(2, Value()), Value(), static_cast<int64_t>(items.size()));
  for (int64_t i = r.start; i < r.stop; ++i)
    if (equal(items[static_cast<size_t>(i)], p.at(0))) return i;
  raise(Fault::value_error, "{} is not in {}", repr(p.at(0)), type_name(self));
}

Value is_integer(Interpreter&, const Value& self, Args&) { return self.as_real() == std::floor(self.as_real()); }

Value bit_length(Interpreter&, const Value& self, Args&) {
  const int64_t n = self.as_int();
  const uint64_t magnitude = n < 0 ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  return magnitude == 0 ? int64_t{0} : int64_t{64 - __builtin_clzll(magnitude)};
}

constexpr Method kDictMethods[] = {
    {"copy", copy},
    {"get", dict_get},
    {"items", dict_view<DictView::Part::items>},
    {"keys", dict_view<DictView::Part::keys>},
    {"values", dict_view<DictView::Part::values>},
};
constexpr Method kListMethods[] = {{"copy", copy}, {"count", sequence_count}, {"index", sequence_index}};
constexpr Method kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr Method kRealMethods[] = {{"is_integer", is_integer}};
constexpr Method kIntMethods[] = {{"bit_length", bit_length}};

// Methods that change their object; the sandbox forbids them.
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
// What every Python object has; the sandbox forbids anything that starts with an underscore.
constexpr std::string_view kDunders[] = {
    "__class__", "__delattr__", "__dir__",  "__doc__",          "__eq__",      "__format__",        "__ge__",
    "__gt__",    "__hash__",    "__init__", "__getattribute__", "__reduce__",  "__init_subclass__", "__le__",
    "__lt__",    "__ne__",      "__new__",  "__reduce_ex__",    "__setattr__", "__repr__",          "__sizeof__",
    "__str__",   "__dict__",    "__call__", "__len__",          "__getitem__", "__iter__",          "__contains__",
    "__add__",   "__mul__",     "__mod__",  "__subclasshook__", "__setitem__", "__delitem__"};

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

template <size_t N>
const Method* find_method(std::string_view name, const Method (&methods)[N]) {
  const auto* it =
      std::find_if(std::begin(methods), std::end(methods), [&](const Method& m) { return m.name == name; });
  return it == std::end(methods) ? nullptr : it;
}

Value unsafe(const Value& v, std::string_view name) {
  return Value::undefined(fmt::format("access to attribute {} of '{}' object is unsafe.", quote(name), type_name(v)),
                          Fault::security_error);
}

[[noreturn]] void unsupported_attribute(const Value& v, std::string_view name) {
  raise(Fault::unsupported, "{}.{} is not supported", type_name(v), name);
}

std::optional<Value> number_attribute(const Value& v, std::string_view name) {
  if (name == "real" || (v.is_integral() && name == "numerator")) return v.is_bool() ? Value(v.as_int()) : v;
  if (name == "imag") return v.is_real() ? Value(0.0) : Value(0);
  if (v.is_integral() && name == "denominator") return Value(1);
  if (name == "conjugate" || name == "as_integer_ratio" || name == "to_bytes" || name == "from_bytes" ||
      name == "hex" || name == "fromhex" || name == "bit_count") {
    unsupported_attribute(v, name);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Value> python_attribute(const Value& v, std::string_view name) {
  if (Object* o = v.object()) {
    if (auto found = o->attribute(name)) return name.starts_with("_") ? unsafe(v, name) : *found;
  }
  if (name.starts_with("__") && is_one_of(name, kDunders) && !dynamic_cast<Namespace*>(v.object()))
    return unsafe(v, name);
  const Method* method = nullptr;
  bool not_here = false;
  switch (v.kind()) {
    case Kind::string: method = string_method(name, not_here); break;
    case Kind::dict:
      if (is_one_of(name, kDictChanges)) return unsafe(v, name);
      method = find_method(name, kDictMethods);
      not_here = name == "fromkeys";
      break;
    case Kind::sequence:
      if (v.is_list() && is_one_of(name, kListChanges)) return unsafe(v, name);
      if (v.seq()->type == Seq::Type::group && name == "grouper") return v.items()[0];
      if (v.seq()->type == Seq::Type::group && name == "list") return v.items()[1];
      method = v.is_list() ? find_method(name, kListMethods) : find_method(name, kTupleMethods);
      break;
    case Kind::real: method = find_method(name, kRealMethods); break;
    case Kind::boolean:
    case Kind::integer: method = find_method(name, kIntMethods); break;
    default: break;
  }
  if (not_here) unsupported_attribute(v, name);
  if (method != nullptr) return Value(std::make_shared<BoundMethod>(v, method));
  if (v.is_number()) return number_attribute(v, name);
  return std::nullopt;
}

}  // namespace ingot::jinja
