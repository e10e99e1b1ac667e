// Schemas by number: a node of the document, or a combination of others, whose shape is made when it is asked for.
#include <algorithm>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {

SchemaId SchemaCompiler::intern(Entry::Kind kind, SchemaId a, SchemaId b, const SchemaNode* node) {
  const uint64_t hash = mix(mix(static_cast<uint64_t>(kind), uint64_t{a} << 32 | b), reinterpret_cast<uintptr_t>(node));
  const uint32_t found = index_.find(hash, [&](uint32_t id) {
    const Entry& entry = entries_[id];
    return entry.kind == kind && entry.a == a && entry.b == b && entry.node == node;
  });
  if (found != HashIndex::kNone) return found;
  program.budget.spend(sizeof(Entry) + 300);  // and a shape
  const auto id = static_cast<SchemaId>(entries_.size());
  entries_.push_back({.kind = kind, .a = a, .b = b, .node = node});
  index_.insert(hash, id);
  return id;
}

SchemaId SchemaCompiler::both(SchemaId a, SchemaId b) {
  if (a == kNoValue || b == kNoValue) return kNoValue;
  if (a == kAnyValue || a == b) return b;
  if (b == kAnyValue) return a;
  const auto denies = [&](SchemaId first, SchemaId second) {
    return entries_[first].kind == Entry::Kind::complement && entries_[first].a == second;
  };
  if (denies(a, b) || denies(b, a)) return kNoValue;
  return intern(Entry::Kind::both, a, b, nullptr);
}

SchemaId SchemaCompiler::complement(SchemaId a) {
  if (a == kAnyValue) return kNoValue;
  if (a == kNoValue) return kAnyValue;
  if (entries_[a].kind == Entry::Kind::complement) return entries_[a].a;
  return intern(Entry::Kind::complement, a, 0, nullptr);
}

const Shape& SchemaCompiler::shape(SchemaId id) {
  if (entries_[id].shape) return *entries_[id].shape;
  if (entries_[id].under_way) throw EndlessReference{entries_[id].node != nullptr ? entries_[id].node->place : "#"};
  constexpr int kMaxDepth = 100;
  if (shape_depth_ >= kMaxDepth)
    throw OverBudget(fmt::format("the schema refers from one to the next more than {} times", kMaxDepth));
  entries_[id].under_way = true;
  ++shape_depth_;
  try {
    auto made = std::make_unique<Shape>(make_shape(id));
    entries_[id].shape = std::move(made);
  } catch (...) {
    --shape_depth_;
    entries_[id].under_way = false;
    throw;
  }
  --shape_depth_;
  entries_[id].under_way = false;
  return *entries_[id].shape;
}

Shape SchemaCompiler::make_shape(SchemaId id) {
  const Entry::Kind kind = entries_[id].kind;
  const SchemaId a = entries_[id].a, b = entries_[id].b;
  switch (kind) {
    case Entry::Kind::any: return Shape::any();
    case Entry::Kind::none: return Shape::none();
    case Entry::Kind::node: return keywords(*entries_[id].node);
    case Entry::Kind::both: {
      const Shape& first = shape(a);  // shapes stay where they are
      return both(first, shape(b));
    }
    case Entry::Kind::complement: return complement(shape(a));
  }
  return Shape::none();
}

bool SchemaCompiler::may_be_satisfiable(SchemaId id) {
  if (id == kAnyValue) return true;
  if (id == kNoValue) return false;
  if (entries_[id].satisfiable) return *entries_[id].satisfiable;
  try {
    return is_satisfiable(id);
  } catch (const EndlessReference&) {
    return true;  // asked again when all shapes are there
  }
}

bool SchemaCompiler::is_satisfiable(SchemaId id) {
  size_t lowest = SIZE_MAX;
  // A search within a search, while a shape is made, takes nothing of the outer one for granted.
  std::unordered_map<uint32_t, size_t> outer;
  outer.swap(in_search_);
  try {
    const bool answer = satisfiable(id, 0, lowest);
    in_search_.swap(outer);
    return answer;
  } catch (...) {
    in_search_.swap(outer);
    throw;
  }
}

// A value is finite: a schema that needs itself is not satisfied by that. `lowest` is the lowest depth of those under
// way whose answer was taken to be no; an answer of no that rests on one is not kept.
bool SchemaCompiler::satisfiable(SchemaId id, size_t depth, size_t& lowest) {
  if (id == kAnyValue) return true;
  if (id == kNoValue) return false;
  if (entries_[id].satisfiable) return *entries_[id].satisfiable;
  if (const auto open = in_search_.find(id); open != in_search_.end()) {
    lowest = std::min(lowest, open->second);
    return false;
  }
  program.budget.tick();
  if (depth > 200) throw OverBudget("the schema needs values nested deeper than 200 levels");
  const Shape& found = shape(id);
  in_search_.emplace(id, depth);
  size_t below = SIZE_MAX;
  bool answer = false;
  try {
    answer = satisfiable(found, depth + 1, below);
  } catch (...) {
    in_search_.erase(id);
    throw;
  }
  in_search_.erase(id);
  if (answer || below >= depth)
    entries_[id].satisfiable = answer;
  else
    lowest = std::min(lowest, below);
  return answer;
}

bool SchemaCompiler::satisfiable(const Shape& shape, size_t depth, size_t& lowest) {
  return shape.null || shape.yes || shape.no || shape.numbers.kind != Scalars::Kind::none ||
         shape.strings.kind != Scalars::Kind::none ||
         std::ranges::any_of(shape.arrays,
                             [&](const auto& array) { return array_satisfiable(array, depth, lowest); }) ||
         std::ranges::any_of(shape.objects,
                             [&](const auto& object) { return object_satisfiable(object, depth, lowest); });
}

bool SchemaCompiler::may_be_satisfiable(const Shape& shape) {
  size_t lowest = SIZE_MAX;
  std::unordered_map<uint32_t, size_t> outer;
  outer.swap(in_search_);
  bool answer = true;
  try {
    answer = satisfiable(shape, 0, lowest);
  } catch (const EndlessReference&) {
  } catch (...) {
    in_search_.swap(outer);
    throw;
  }
  in_search_.swap(outer);
  return answer;
}

bool SchemaCompiler::array_satisfiable(const ArrayShape& shape, size_t depth, size_t& lowest) {
  if (shape.least > shape.most) return false;
  if (shape.unique && this->shape(shape.rest).listed && shape.least > this->shape(shape.rest).values.size())
    return false;
  for (uint64_t i = 0; i < std::min<uint64_t>(shape.least, shape.prefix.size() + 1); ++i)
    if (!satisfiable(shape.at(i), depth, lowest)) return false;
  for (const ArrayShape::Contains& contains : shape.contains) {
    if (contains.least == 0) continue;
    if (contains.least > contains.most) return false;
    // Enough items must be able to match; items before `from` and beyond `most` cannot.
    uint64_t matching = 0;
    const uint64_t known = std::min<uint64_t>(shape.prefix.size(), shape.most);
    for (uint64_t i = contains.from; i < known; ++i)
      if (satisfiable(both(shape.prefix[i], contains.schema), depth, lowest)) ++matching;
    if (matching >= contains.least) continue;
    const uint64_t first = std::max<uint64_t>(shape.prefix.size(), contains.from);
    if (first >= shape.most || shape.most - first < contains.least - matching) return false;
    if (!satisfiable(both(shape.rest, contains.schema), depth, lowest)) return false;
  }
  return true;
}

bool SchemaCompiler::object_satisfiable(const ObjectShape& shape, size_t depth, size_t& lowest) {
  uint64_t required = 0;
  for (const ObjectShape::Property& property : shape.properties) {
    if (!property.required) continue;
    ++required;
    if (!satisfiable(property.schema, depth, lowest)) return false;
  }
  if (required > shape.most || shape.least > shape.most) return false;
  for (const ObjectShape::Keys& some : shape.some) {
    bool found = false;
    for (const ObjectShape::Keys& keys : shape.others)
      found = found || (!pool.is_nothing(pool.both({keys.keys, some.keys, plain_string})) &&
                        satisfiable(both(keys.schema, some.schema), depth, lowest));
    for (const ObjectShape::Property& property : shape.properties)
      found = found || satisfiable(both(property.schema, some.schema), depth, lowest);
    if (!found) return false;
  }
  if (shape.least > required) {  // are there names enough?
    uint64_t names = 0;
    for (const ObjectShape::Property& property : shape.properties)
      if (satisfiable(property.schema, depth, lowest)) ++names;
    for (const ObjectShape::Keys& keys : shape.others)
      if (names < shape.least && satisfiable(keys.schema, depth, lowest)) names = shape.least;
    if (names < shape.least) return false;
  }
  return true;
}

}  // namespace ingot::grammar
