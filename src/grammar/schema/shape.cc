#include "grammar/schema/shape.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxAlternatives = 128;  // of arrays or objects in one schema
constexpr size_t kMaxKeyClasses = 64;
constexpr size_t kMaxSome = 4;
constexpr size_t kMaxListed = 64;

void check_alternatives(size_t count) {
  if (count > kMaxAlternatives)
    throw OverBudget(
        fmt::format("a combination of schemas has more than {} alternatives: make it simpler", kMaxAlternatives));
}

const ObjectShape::Property* find_property(const ObjectShape& object, const std::string& name) {
  const auto found = std::ranges::find(object.properties, name, &ObjectShape::Property::name);
  return found == object.properties.end() ? nullptr : &*found;
}

ObjectShape any_object() {
  ObjectShape object;
  object.others = {{ExprPool::kAll, kAnyValue}};
  return object;
}

}  // namespace

Shape Shape::any() {
  Shape shape{true, true, true, {}, {}, {}, {}};
  shape.arrays.emplace_back();
  shape.objects.push_back(any_object());
  return shape;
}

Shape Shape::none() {
  constexpr Scalars kNone{Scalars::Kind::none};
  return {false, false, false, kNone, kNone, {}, {}};
}

Scalars SchemaCompiler::some(ExprId expr) {
  if (pool.is_nothing(expr)) return {Scalars::Kind::none};
  return {Scalars::Kind::some, expr};
}

Scalars SchemaCompiler::both(const Scalars& a, const Scalars& b, ExprId universe) {
  if (a.kind == Scalars::Kind::all) return b;
  if (b.kind == Scalars::Kind::all) return a;
  if (a.kind == Scalars::Kind::none || b.kind == Scalars::Kind::none) return {Scalars::Kind::none};
  if (a.expr == universe) return b;
  if (b.expr == universe) return a;
  return some(pool.both({a.expr, b.expr}));
}

Scalars SchemaCompiler::complement(const Scalars& a, ExprId universe) {
  if (a.kind == Scalars::Kind::all) return {Scalars::Kind::none};
  if (a.kind == Scalars::Kind::none) return {Scalars::Kind::all};
  return some(pool.without(universe, a.expr));
}

Shape SchemaCompiler::both(const Shape& a, const Shape& b) {
  Shape out{a.null && b.null,
            a.yes && b.yes,
            a.no && b.no,
            both(a.numbers, b.numbers, plain_number),
            both(a.strings, b.strings, plain_string),
            both(a.arrays, b.arrays),
            both(a.objects, b.objects)};
  out.listed = a.listed || b.listed;
  if (out.listed) {
    const ExprId others = scalars_expr(a.listed ? b : a);
    for (const ExprId value : a.listed ? a.values : b.values)
      if (!pool.is_nothing(pool.both({value, others}))) out.values.push_back(value);
  }
  return out;
}

Shape SchemaCompiler::either(Shape a, Shape b) {
  const auto join = [&](Scalars& to, const Scalars& from) {
    if (to.kind == Scalars::Kind::all || from.kind == Scalars::Kind::none) return;
    to = to.kind == Scalars::Kind::none || from.kind == Scalars::Kind::all
             ? from
             : Scalars{Scalars::Kind::some, pool.either({to.expr, from.expr})};
  };
  a.null |= b.null;
  a.yes |= b.yes;
  a.no |= b.no;
  join(a.numbers, b.numbers);
  join(a.strings, b.strings);
  a.listed = a.listed && b.listed && a.values.size() < kMaxListed;
  for (const ExprId value : b.values)
    if (std::ranges::find(a.values, value) == a.values.end()) a.values.push_back(value);
  if (!a.listed) a.values.clear();
  std::ranges::move(b.arrays, std::back_inserter(a.arrays));
  std::ranges::move(b.objects, std::back_inserter(a.objects));
  check_alternatives(a.arrays.size());
  check_alternatives(a.objects.size());
  return a;
}

Shape SchemaCompiler::complement(const Shape& a) {
  Shape out = Shape::any();
  out.null = !a.null;
  out.yes = !a.yes;
  out.no = !a.no;
  out.numbers = complement(a.numbers, plain_number);
  out.strings = complement(a.strings, plain_string);
  for (const ArrayShape& shape : a.arrays) out.arrays = both(out.arrays, complement(shape));
  for (const ObjectShape& shape : a.objects) out.objects = both(out.objects, complement(shape));
  return out;
}

std::vector<ArrayShape> SchemaCompiler::both(const std::vector<ArrayShape>& a, const std::vector<ArrayShape>& b) {
  std::vector<ArrayShape> out;
  for (const ArrayShape& first : a)
    for (const ArrayShape& second : b) {
      program.budget.tick();
      auto merged = both(first, second);
      if (merged && std::ranges::find(out, *merged) == out.end()) out.push_back(std::move(*merged));
      check_alternatives(out.size());
    }
  return out;
}

std::vector<ObjectShape> SchemaCompiler::both(const std::vector<ObjectShape>& a, const std::vector<ObjectShape>& b) {
  std::vector<ObjectShape> out;
  for (const ObjectShape& first : a)
    for (const ObjectShape& second : b) {
      program.budget.tick();
      auto merged = both(first, second);
      if (merged && std::ranges::find(out, *merged) == out.end()) out.push_back(std::move(*merged));
      check_alternatives(out.size());
    }
  return out;
}

std::optional<ArrayShape> SchemaCompiler::both(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  for (size_t i = 0; i < std::max(a.prefix.size(), b.prefix.size()); ++i) out.prefix.push_back(both(a.at(i), b.at(i)));
  out.rest = both(a.rest, b.rest);
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  if (out.least > out.most) return std::nullopt;
  for (uint64_t i = 0; i < std::min<uint64_t>(out.least, out.prefix.size()); ++i)
    if (!may_be_satisfiable(out.prefix[i])) return std::nullopt;
  if (out.least > out.prefix.size() && !may_be_satisfiable(out.rest)) return std::nullopt;
  out.contains = a.contains;
  for (const ArrayShape::Contains& contains : b.contains)
    if (std::ranges::find(out.contains, contains) == out.contains.end()) out.contains.push_back(contains);
  program.budget.check(out.contains.size(), kMaxSome, "kinds of items that must be somewhere in one array");
  out.unique = a.unique || b.unique;
  out.unique_place = a.unique ? a.unique_place : b.unique_place;
  out.evaluated = std::max(a.evaluated, b.evaluated);
  return out;
}

SchemaId SchemaCompiler::property_schema(const ObjectShape& object, const std::string& name) {
  if (const auto* property = find_property(object, name)) return property->schema;
  if (object.others.size() == 1) return object.others[0].schema;
  // Told by any one of its spellings.
  const std::string encoded = SchemaJson(name).dump();
  const std::string_view content = std::string_view(encoded).substr(1, encoded.size() - 2);
  for (const ObjectShape::Keys& keys : object.others)
    if (pool.matches(keys.keys, content)) return keys.schema;
  return kNoValue;
}

ExprId SchemaCompiler::names_expr(const ObjectShape& object) {
  std::vector<ExprId> names;
  for (const ObjectShape::Property& property : object.properties) names.push_back(program.json.literal(property.name));
  return pool.either(std::move(names));
}

std::optional<ObjectShape> SchemaCompiler::both(const ObjectShape& a, const ObjectShape& b) {
  ObjectShape out;
  const auto add = [&](const ObjectShape::Property& property, const ObjectShape& other) {
    const auto* twin = find_property(other, property.name);
    const SchemaId schema = both(property.schema, property_schema(other, property.name));
    out.properties.push_back({property.name, schema, property.required || (twin != nullptr && twin->required)});
  };
  for (const ObjectShape::Property& property : a.properties) add(property, b);
  for (const ObjectShape::Property& property : b.properties)
    if (find_property(a, property.name) == nullptr) add(property, a);
  for (const ObjectShape::Property& property : out.properties)
    if (property.required && !may_be_satisfiable(property.schema)) return std::nullopt;
  for (const ObjectShape::Keys& first : a.others)
    for (const ObjectShape::Keys& second : b.others) {
      const ExprId keys = pool.both({first.keys, second.keys});
      if (pool.is_nothing(keys)) continue;
      const SchemaId schema = both(first.schema, second.schema);
      const auto same = std::ranges::find(out.others, schema, &ObjectShape::Keys::schema);
      if (same != out.others.end())
        same->keys = pool.either({same->keys, keys});
      else
        out.others.push_back({keys, schema});
      program.budget.check(out.others.size(), kMaxKeyClasses, "kinds of property names in one object");
    }
  out.least = std::max(a.least, b.least);
  out.most = std::min(a.most, b.most);
  if (out.least > out.most) return std::nullopt;
  out.implications = a.implications;
  out.implications.insert(out.implications.end(), b.implications.begin(), b.implications.end());
  out.some = a.some;
  for (const ObjectShape::Keys& some : b.some)
    if (std::ranges::none_of(out.some,
                             [&](const auto& other) { return other.keys == some.keys && other.schema == some.schema; }))
      out.some.push_back(some);
  program.budget.check(out.some.size(), kMaxSome, "members that must be somewhere in one object");
  out.evaluated = a.evaluated;
  out.evaluated.insert(b.evaluated.begin(), b.evaluated.end());
  out.evaluated_keys = pool.either({a.evaluated_keys, b.evaluated_keys});
  return out;
}

// Every way in which an array fails to be of the shape.
std::vector<ArrayShape> SchemaCompiler::complement(const ArrayShape& a) {
  if (a.unique) throw_bad_parameter(a.unique_place, "cannot be negated");
  std::vector<ArrayShape> out;
  if (a.least > 0) out.push_back({.most = a.least - 1});
  if (a.most != kMany) out.push_back({.least = a.most + 1});
  for (size_t i = 0; i < a.prefix.size(); ++i) {
    if (a.prefix[i] == kAnyValue) continue;
    ArrayShape fault{.least = i + 1};
    fault.prefix.assign(i, kAnyValue);
    fault.prefix.push_back(complement(a.prefix[i]));
    out.push_back(std::move(fault));
  }
  if (a.rest != kAnyValue) {
    if (a.rest == kNoValue)
      out.push_back({.least = a.prefix.size() + 1});
    else
      out.push_back({.contains = {{complement(a.rest), a.prefix.size(), 1, kMany}}});
  }
  for (const ArrayShape::Contains& contains : a.contains) {
    if (contains.least > 0) out.push_back({.contains = {{contains.schema, contains.from, 0, contains.least - 1}}});
    if (contains.most != kMany)
      out.push_back({.contains = {{contains.schema, contains.from, contains.most + 1, kMany}}});
  }
  return out;
}

std::vector<ObjectShape> SchemaCompiler::complement(const ObjectShape& a) {
  std::vector<ObjectShape> out;
  const auto fault = [&]() -> ObjectShape& { return out.emplace_back(any_object()); };
  if (a.least > 0) fault().most = a.least - 1;
  if (a.most != kMany) fault().least = a.most + 1;
  for (const ObjectShape::Property& property : a.properties) {
    if (property.required) fault().properties = {{property.name, kNoValue, false}};
    if (property.schema != kAnyValue) fault().properties = {{property.name, complement(property.schema), true}};
  }
  for (const ObjectShape::Keys& keys : a.others)
    if (keys.schema != kAnyValue) fault().some = {{pool.without(keys.keys, names_expr(a)), complement(keys.schema)}};
  for (const ObjectShape::Implication& implication : a.implications)
    fault().properties = {{implication.first, kAnyValue, true}, {implication.second, kNoValue, false}};
  for (const ObjectShape::Keys& some : a.some)
    fault().others = {{some.keys, complement(some.schema)}, {pool.complement(some.keys), kAnyValue}};
  return out;
}

}  // namespace ingot::grammar
