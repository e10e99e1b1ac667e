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

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/limits.h"
#include "text/jinja/raise.h"

namespace ingot::jinja {

class Run;
class Value;
class Dict;
class Object;
struct Args;
struct Seq;
struct Str;

struct Undefined {
  std::string message;  // what an operation on the value fails with
};

enum class Kind { none, boolean, integer, real, string, sequence, dict, undefined, object };

// A Python value. Strings, sequences and dicts are shared and never change once made; what can change (namespaces, loop
// variables) is an Object.
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
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  Value(const void*) = delete;

  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value undefined(std::string message);
  static Value missing(std::string_view name);  // a variable that does not exist
  static Value from_json(const nlohmann::ordered_json& json);

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
  const Seq* seq() const;                   // null when not a sequence
  const std::vector<Value>& items() const;  // sequence
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  const std::string& undefined_message() const { return std::get<std::shared_ptr<const Undefined>>(data_)->message; }
  Object* object() const;  // null when not an object

  bool truthy() const;
  uint64_t weight() const;  // see kMaxValueWeight
  int depth() const;        // see kMaxValueDepth

 private:
  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<const Str>, std::shared_ptr<const Seq>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Undefined>, std::shared_ptr<Object>>
      data_;
};

// Counts the bytes that values of this thread hold. A render makes and frees its values on one thread, so the
// difference to the count at its start is what it uses.
class Footprint {
 public:
  explicit Footprint(size_t bytes) { grow(bytes); }
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
  size_t bytes_ = 0;
};

struct Str {
  Str(std::string t, bool m);

  std::string text;
  size_t length;  // in characters
  bool markup;    // came out of `safe`: markupsafe.Markup, to which other text is added escaped
  Footprint footprint;
};

struct Seq {
  // A generator is what filters like map() give: true even when empty, without a length, and gone through only once.
  enum class Type { list, tuple, dict_keys, dict_values, dict_items, range, generator };
  Seq(Type t, std::vector<Value> v);

  std::vector<Value> items;
  Type type;
  uint64_t weight = 64;
  int depth = 1;
  mutable size_t taken = 0;  // of a generator's items
  Footprint footprint;
};

// Keeps the order of insertion. 1, 1.0 and True are the same key, as in Python.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  void set(Value key, Value value);  // only while the dict is being made
  const Value* find(const Value& key) const;
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

// Goes once over the items of a value: of a sequence, the keys of a dict, the characters of a string. Raises for
// others.
class Iter {
 public:
  explicit Iter(Value v);
  static bool can(const Value& v);
  bool next(Value& out);  // false at the end

 private:
  Value value_;
  size_t at_ = 0;  // item, entry or byte
};

// Everything that is not plain data: functions, namespaces, loop variables.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;  // of the Python class
  virtual std::optional<Value> attribute(std::string_view) { return std::nullopt; }
  virtual bool is_callable() const { return false; }
  virtual Value call(Run& run, Args args);
  virtual void forget() {}  // drops what it refers to, so that cycles are freed
};

std::string_view type_name(const Value& v);  // Python's name of the type, e.g. "int", "NoneType"

std::vector<Value> to_vector(const Value& v);      // raises when not iterable
std::optional<int64_t> length_of(const Value& v);  // len(); nothing when the type has none

bool equal(const Value& a, const Value& b);
// Raises for values without an order; `op` is for the message.
std::partial_ordering compare(const Value& a, const Value& b, std::string_view op);

inline void require_defined(const Value& v) {
  if (v.is_undefined()) throw Raise(ErrorKind::bad_call, v.undefined_message());
}

}  // namespace ingot::jinja
