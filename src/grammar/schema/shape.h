#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "grammar/expr.h"

namespace ingot::grammar {

// What schemas accept, as data: sets of values that can be united, intersected and complemented exactly. Schemas of
// the values within are kept by number, so that recursion has an end.

using SchemaId = uint32_t;
inline constexpr SchemaId kAnyValue = 0;
inline constexpr SchemaId kNoValue = 1;
inline constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();

// Numbers or strings. `some`: the texts of an expression, in the spellings that all such expressions share (numbers
// without exponent; strings as Encoding::json, without quotes). `all`: any spelling.
struct Scalars {
  enum class Kind : uint8_t { none, some, all };
  Kind kind = Kind::all;
  ExprId expr = ExprPool::kNothing;
};

struct ArrayShape {
  std::vector<SchemaId> prefix;  // of the first items
  SchemaId rest = kAnyValue;     // of the others
  uint64_t least = 0, most = kMany;
  struct Contains {
    SchemaId schema;
    uint64_t from;  // items before this one do not count
    uint64_t least, most;
    bool operator==(const Contains&) const = default;
  };
  std::vector<Contains> contains;
  bool unique = false;
  std::string unique_place;  // of `uniqueItems`, for errors
  uint64_t evaluated = 0;    // items that a keyword has looked at, for unevaluatedItems

  bool operator==(const ArrayShape&) const = default;
  SchemaId at(uint64_t index) const { return index < prefix.size() ? prefix[index] : rest; }
};

struct ObjectShape {
  struct Property {
    std::string name;
    SchemaId schema = kAnyValue;
    bool required = false;
    bool operator==(const Property&) const = default;
  };
  struct Keys {
    ExprId keys;  // encoded as in JSON, without quotes
    SchemaId schema;
    bool operator==(const Keys&) const = default;
  };
  std::vector<Property> properties;  // each name once, in the order of the schema
  std::vector<Keys> others;          // of all names that are no property; disjoint, and together every text
  uint64_t least = 0, most = kMany;  // members
  struct Implication {
    std::string first, second;  // a member of the first name demands one of the second
    bool operator==(const Implication&) const = default;
  };
  std::vector<Implication> implications;
  std::vector<Keys> some;                      // for each, a member with such a key and value must be there
  std::set<std::string> evaluated;             // names that a keyword has looked at, for unevaluatedProperties
  ExprId evaluated_keys = ExprPool::kNothing;  // and others
  bool operator==(const ObjectShape&) const = default;
};

// A union: each value is of one of these.
struct Shape {
  bool null = false, yes = false, no = false;
  Scalars numbers, strings;
  std::vector<ArrayShape> arrays;
  std::vector<ObjectShape> objects;
  // Where the values are few and known: the texts of each, quotes included. `listed`: these are all.
  std::vector<ExprId> values = {};
  bool listed = false;

  static Shape any();
  static Shape none();
  static Shape empty_list() {  // to which values are added
    Shape shape = none();
    shape.listed = true;
    return shape;
  }
};

}  // namespace ingot::grammar
