#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/raise.h"

namespace ingot::jinja {

class Interpreter;
class Value;
struct Args;
struct Str;
struct Seq;
class Dict;
struct Undefined;
class Object;

// One pass over the items of a value.
class Iter {
 public:
  virtual ~Iter() = default;
  virtual bool next(Value& out) = 0;  // false at the end
};

enum class Kind { none, boolean, integer, real, string, sequence, dict, undefined, object };

// A Python value. Strings, sequences and dicts are shared and never change once made; what can change (namespaces, loop
// variables, generators) is an Object.
class Value {
 public:
  Value() = default;  // None
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(int i) : data_(int64_t{i}) {}
  Value(double d) : data_(d) {}
  Value(std::string text, bool markup = false);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const Seq> seq) : data_(std::move(seq)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<const Undefined> undefined) : data_(std::move(undefined)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  Value(const void*) = delete;

  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  // `message` is what an operation on the value fails with.
  static Value undefined(std::string message, Fault fault = Fault::undefined_error);
  static Value missing(std::string_view name);  // a variable that does not exist

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_none() const { return kind() == Kind::none; }
  bool is_bool() const { return kind() == Kind::boolean; }
  bool is_int() const { return kind() == Kind::integer; }
  bool is_real() const { return kind() == Kind::real; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_dict() const { return kind() == Kind::dict; }
  bool is_undefined() const { return kind() == Kind::undefined; }
  bool is_list() const;
  bool is_tuple() const;
  bool is_markup() const;
  bool is_integral() const { return is_int() || is_bool(); }  // what Python's int covers
  bool is_number() const { return is_integral() || is_real(); }

  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_int() const { return is_bool() ? int64_t{as_bool()} : std::get<int64_t>(data_); }  // int or bool
  double as_real() const { return is_real() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const std::string& text() const;          // string
  size_t length() const;                    // string, in characters
  const Seq* seq() const;                   // null when not a list or tuple
  const std::vector<Value>& items() const;  // list or tuple
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  std::shared_ptr<const Dict> dict_ref() const { return std::get<std::shared_ptr<const Dict>>(data_); }
  const Undefined& undefined_info() const { return *std::get<std::shared_ptr<const Undefined>>(data_); }
  Object* object() const;  // null when not an object
  const std::shared_ptr<Object>& object_ref() const { return std::get<std::shared_ptr<Object>>(data_); }

  bool truthy() const;
  bool same(const Value& other) const;  // Python's `is`
  uint64_t weight() const;              // see kMaxValueWeight
  int depth() const;                    // see kMaxValueDepth

 private:
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const Str>, std::shared_ptr<const Seq>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Undefined>, std::shared_ptr<Object>>
      data_;
};

// Counts the bytes that values of this thread hold. A render makes and frees its values on one thread, so the
// difference to the count at its start is what it uses.
class Footprint {
 public:
  explicit Footprint(size_t bytes) : bytes_(bytes) { live_ += static_cast<int64_t>(bytes); }
  Footprint(const Footprint& other) : Footprint(other.bytes_) {}
  Footprint& operator=(const Footprint&) = delete;
  ~Footprint() { live_ -= static_cast<int64_t>(bytes_); }
  void grow(size_t bytes) {
    bytes_ += bytes;
    live_ += static_cast<int64_t>(bytes);
  }
  static int64_t live() { return live_; }

 private:
  static thread_local int64_t live_;
  size_t bytes_;
};

struct Str {
  Str(std::string t, bool m);

  std::string text;
  size_t length;  // in characters
  bool markup;    // came out of `safe` or `escape`: markupsafe.Markup
  Footprint footprint;
};

struct Seq {
  enum class Type { list, tuple, group };  // group: what groupby() makes, a tuple with .grouper and .list
  Seq(Type t, std::vector<Value> v);

  std::vector<Value> items;
  Type type;
  uint64_t weight;
  int depth;
  Footprint footprint;
};

// Keeps the order of insertion. 1, 1.0 and True are the same key, as in Python.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  void set(Value key, Value value);  // only while the dict is being made
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  uint64_t weight() const { return weight_; }
  int depth() const { return depth_; }

 private:
  size_t position(const Value& key, size_t hash) const;  // entries_.size() when absent

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, uint32_t> index_;  // hash to position; only filled for dicts of some size
  uint64_t weight_ = 64;
  int depth_ = 1;
  Footprint footprint_{64};
};

struct Undefined {
  std::string message;
  Fault fault;
};

// Arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  std::optional<Value> take_keyword(std::string_view name);
};

// Everything that is not plain data: ranges, dict views, generators, functions, namespaces, loop variables.
class Object {
 public:
  explicit Object(int depth = 0, uint64_t weight = 64);
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;         // of the Python class
  virtual std::string_view module() const { return ""; }  // of the Python class; empty for builtins
  virtual std::string repr(int level) const = 0;          // `level`: of nesting, see repr_entries()
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  virtual std::optional<Value> item(const Value&) { return std::nullopt; }
  virtual bool has_items() const { return false; }  // Python's __getitem__
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  virtual std::unique_ptr<Iter> iterate() { return nullptr; }
  virtual std::unique_ptr<Iter> reversed() { return nullptr; }
  virtual const Value* self() const { return nullptr; }  // what a method belongs to
  virtual bool is_callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Args args);
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual void forget() {}  // drops what it refers to, so that cycles are freed

  int depth() const { return depth_; }
  uint64_t weight() const { return weight_; }

 private:
  int depth_;
  uint64_t weight_;
};

// Python's name of the type, e.g. "int", "NoneType".
std::string_view type_name(const Value& v);
// As jinja2 names values in messages, e.g. "dict object", "None".
std::string describe_type(const Value& v);

std::unique_ptr<Iter> try_iterate(const Value& v);  // null when not iterable
std::unique_ptr<Iter> iterate(const Value& v);      // raises when not iterable
std::vector<Value> to_vector(const Value& v);
std::optional<int64_t> length_of(const Value& v);  // len(); nothing when the type has none

bool equal(const Value& a, const Value& b);
// Raises for values without an order; `op` is for the message.
std::partial_ordering compare(const Value& a, const Value& b, std::string_view op);
size_t hash(const Value& v);  // raises for lists and dicts

[[noreturn]] void fail_undefined(const Value& v);
inline void require_defined(const Value& v) {
  if (v.is_undefined()) fail_undefined(v);
}

}  // namespace ingot::jinja
