// Keywords that combine schemas for the same value, and those that look at what others have left.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "grammar/schema/compiler.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxUnevaluatedBranches = 5;  // of anyOf: all their unions are looked at

}  // namespace

Shape SchemaCompiler::combine_keywords(const SchemaNode& node, Shape result) {
  const auto branches = [&](const char* keyword) {
    std::vector<SchemaId> out;
    const auto found = node.value->find(keyword);
    if (found == node.value->end()) return out;
    if (!found->is_array() || found->empty()) bad_keyword(node, keyword, "must be a list of schemas");
    for (size_t i = 0; i < found->size(); ++i)
      out.push_back(schema_of(document_.child(node, (*found)[i], {keyword, std::to_string(i)})));
    return out;
  };
  const auto branch = [&](const char* keyword) -> std::optional<SchemaId> {
    const auto found = node.value->find(keyword);
    if (found == node.value->end()) return std::nullopt;
    return schema_of(document_.child(node, *found, {keyword}));
  };
  if (const auto reference = node.value->find("$ref"); reference != node.value->end()) {
    if (!reference->is_string()) bad_keyword(node, "$ref", "must be a reference");
    const SchemaNode& target = document_.refer(node, reference->get<std::string>(), "$ref");
    result = both(result, shape(schema_of(target)));
  }
  for (const SchemaId each : branches("allOf")) result = both(result, shape(each));
  if (const auto list = branches("anyOf"); !list.empty()) result = both(result, any_of(node, list));
  if (const auto list = branches("oneOf"); !list.empty()) result = one_of(node, list, result);
  if (const auto not_this = branch("not")) {
    // What a failed schema has looked at does not count as evaluated; its complement carries nothing.
    result = both(result, shape(complement(*not_this)));
  }
  if (const auto condition = branch("if")) {
    const SchemaId yes = branch("then").value_or(kAnyValue), no = branch("else").value_or(kAnyValue);
    if (yes != kAnyValue || no != kAnyValue || uses_unevaluated_) {
      const SchemaId then = yes == kAnyValue ? *condition : both(*condition, yes);
      const SchemaId otherwise = both(complement(*condition), no);
      Shape first = shape(then);
      result = both(result, either(std::move(first), shape(otherwise)));
    }
  }
  for (const char* keyword : {"dependentSchemas", "dependencies"}) {
    const auto found = node.value->find(keyword);
    if (found == node.value->end()) continue;
    if (!found->is_object()) bad_keyword(node, keyword, "must be an object");
    for (const auto& [name, value] : found->items()) {
      if (value.is_array()) continue;
      // Either the member is missing, or the whole object is of the schema.
      Shape without = Shape::any(), with = Shape::any();
      without.objects[0].properties = {{name, kNoValue, false}};
      with = Shape::none();
      with.objects = {Shape::any().objects[0]};
      with.objects[0].properties = {{name, kAnyValue, true}};
      with = both(with, shape(schema_of(document_.child(node, value, {keyword, name}))));
      result = both(result, either(std::move(without), std::move(with)));
    }
  }
  return result;
}

Shape SchemaCompiler::any_of(const SchemaNode& node, const std::vector<SchemaId>& branches) {
  Shape result = Shape::empty_list();
  for (const SchemaId each : branches) {
    Shape one = shape(each);
    result = either(std::move(result), std::move(one));
  }
  // What a value leaves unevaluated depends on all branches that accept it.
  if (uses_unevaluated_ && branches.size() > 1) {
    if (branches.size() > kMaxUnevaluatedBranches)
      bad_keyword(node, "anyOf", "has too many branches beside unevaluatedProperties or unevaluatedItems");
    for (size_t chosen = 1; chosen < size_t{1} << branches.size(); ++chosen) {
      if ((chosen & (chosen - 1)) == 0) continue;  // one alone is there already
      SchemaId all = kAnyValue;
      for (size_t i = 0; i < branches.size(); ++i)
        if ((chosen >> i & 1) != 0) all = both(all, branches[i]);
      if (!may_be_satisfiable(all)) continue;
      Shape one = shape(all);
      result = either(std::move(result), std::move(one));
    }
  }
  return result;
}

// Of the values in `context`. Branches that exclude each other are simply united; from others what both accept is
// taken.
Shape SchemaCompiler::one_of(const SchemaNode& node, const std::vector<SchemaId>& branches, const Shape& context) {
  Shape result = Shape::empty_list();
  for (size_t i = 0; i < branches.size(); ++i) {
    try {
      Shape part = both(context, shape(branches[i]));
      for (size_t j = 0; j < branches.size(); ++j)
        if (i != j && may_be_satisfiable(both(part, shape(branches[j]))))
          part = both(part, shape(complement(branches[j])));
      result = either(std::move(result), std::move(part));
    } catch (const OverBudget&) {
      bad_keyword(node, "oneOf", "has branches that overlap in ways too many to tell apart: use anyOf");
    }
  }
  return result;
}

void SchemaCompiler::unevaluated_keywords(const SchemaNode& node, Shape& result) {
  if (const auto found = node.value->find("unevaluatedProperties"); found != node.value->end()) {
    const SchemaId schema = schema_of(document_.child(node, *found, {"unevaluatedProperties"}));
    std::vector<ObjectShape> objects;
    for (ObjectShape& object : result.objects) {
      ObjectShape limit;
      limit.others = {{object.evaluated_keys, kAnyValue}, {pool.complement(object.evaluated_keys), schema}};
      std::erase_if(limit.others, [&](const auto& keys) { return pool.is_nothing(keys.keys); });
      for (const std::string& name : object.evaluated) limit.properties.push_back({name, kAnyValue, false});
      if (auto merged = both(object, limit)) {
        merged->evaluated_keys = ExprPool::kAll;
        objects.push_back(std::move(*merged));
      }
    }
    result.objects = std::move(objects);
  }
  if (const auto found = node.value->find("unevaluatedItems"); found != node.value->end()) {
    const SchemaId schema = schema_of(document_.child(node, *found, {"unevaluatedItems"}));
    std::vector<ArrayShape> arrays;
    for (const ArrayShape& array : result.arrays) {
      if (!array.contains.empty()) bad_keyword(node, "unevaluatedItems", "is not supported beside contains");
      ArrayShape limit;
      if (array.evaluated != kMany) {
        limit.prefix.assign(array.evaluated, kAnyValue);
        limit.rest = schema;
      }
      limit.evaluated = kMany;
      if (auto merged = both(array, limit)) arrays.push_back(std::move(*merged));
    }
    result.arrays = std::move(arrays);
  }
}

}  // namespace ingot::grammar
