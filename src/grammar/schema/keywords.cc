// Keywords of one type each: numbers, strings, arrays, objects.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/printable.h"
#include "grammar/regex.h"
#include "grammar/schema/compiler.h"
#include "grammar/schema/number.h"

namespace ingot::grammar {
namespace {

constexpr size_t kMaxPatterns = 8;  // of one object: each may double the kinds of names

const SchemaJson* find_keyword(const SchemaNode& node, std::string_view keyword) {
  const auto found = node.value->find(keyword);
  return found == node.value->end() ? nullptr : &*found;
}

std::optional<Decimal> number_keyword(const SchemaNode& node, std::string_view keyword) {
  const SchemaJson* value = find_keyword(node, keyword);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) bad_keyword(node, keyword, "must be a number");
  return parse_decimal(value->dump());
}

const SchemaJson* object_keyword(const SchemaNode& node, std::string_view keyword) {
  const SchemaJson* value = find_keyword(node, keyword);
  if (value != nullptr && !value->is_object()) bad_keyword(node, keyword, "must be an object");
  return value;
}

std::vector<std::string> names_in(const SchemaNode& node, std::string_view keyword, const SchemaJson& list) {
  if (!list.is_array()) bad_keyword(node, keyword, "must be a list of names");
  std::vector<std::string> names;
  for (const SchemaJson& name : list) {
    if (!name.is_string()) bad_keyword(node, keyword, "must be a list of names");
    names.push_back(name.get<std::string>());
  }
  return names;
}

}  // namespace

Scalars SchemaCompiler::number_keywords(const SchemaNode& node) {
  NumberExprs numbers(pool);
  std::vector<ExprId> parts;
  // Up to draft 4 the exclusive bounds were flags.
  const auto bound = [&](const char* inclusive, const char* exclusive, auto make) {
    const SchemaJson* flag = find_keyword(node, exclusive);
    const bool is_flag = flag != nullptr && flag->is_boolean();
    if (const auto value = number_keyword(node, inclusive)) parts.push_back(make(*value, is_flag && flag->get<bool>()));
    if (is_flag) return;
    if (const auto value = number_keyword(node, exclusive)) parts.push_back(make(*value, true));
  };
  bound("minimum", "exclusiveMinimum", [&](const Decimal& d, bool strict) { return numbers.at_least(d, strict); });
  bound("maximum", "exclusiveMaximum", [&](const Decimal& d, bool strict) { return numbers.at_most(d, strict); });
  if (const auto step = number_keyword(node, "multipleOf")) {
    if (step->negative || step->is_zero()) bad_keyword(node, "multipleOf", "must be more than 0");
    std::string digits = step->whole + step->fraction;
    digits.erase(0, digits.find_first_not_of('0'));
    if (digits.size() > 9 || step->fraction.size() > 18)
      bad_keyword(node, "multipleOf", "has too many digits to be supported");
    auto divisor = static_cast<uint32_t>(std::stoul(digits));
    auto places = static_cast<uint32_t>(step->fraction.size());
    constexpr uint32_t kMaxDivisor = 100'000;  // as many states
    if (const SchemaJson* type = find_keyword(node, "type"); type != nullptr && *type == "integer" && places > 0) {
      // Whole multiples of 0.75 are those of 3.
      uint64_t scale = 1;
      for (; places > 0; --places) scale *= 10;
      divisor /= static_cast<uint32_t>(std::gcd(uint64_t{divisor}, scale));
    }
    if (divisor > kMaxDivisor) bad_keyword(node, "multipleOf", "has too many digits to be supported");
    parts.push_back(numbers.multiple_of(divisor, places));
  }
  if (parts.empty()) return {Scalars::Kind::all};
  return some(pool.both(std::move(parts)));
}

Scalars SchemaCompiler::string_keywords(const SchemaNode& node) {
  std::vector<ExprId> parts;
  const uint64_t least = count_keyword(node, "minLength", 0), most = count_keyword(node, "maxLength", kMany);
  if (least > most) return {Scalars::Kind::none};
  if (least > 0 || most != kMany) {
    constexpr uint64_t kLongest = 1'000'000'000;
    if (least > kLongest) bad_keyword(node, "minLength", "is more than a model will ever write");
    parts.push_back(pool.repeat(program.json.any(), static_cast<uint32_t>(least),
                                most > kLongest ? ExprPool::kUnbounded : static_cast<uint32_t>(most)));
  }
  if (const SchemaJson* pattern = find_keyword(node, "pattern")) {
    if (!pattern->is_string()) bad_keyword(node, "pattern", "must be a regular expression");
    parts.push_back(parse_regex(program.json, pattern->get_ref<const std::string&>(), RegexMatch::anywhere,
                                node.place + "/pattern"));
  }
  if (const SchemaJson* format = find_keyword(node, "format")) {
    if (!format->is_string()) bad_keyword(node, "format", "must be a name");
    if (options.assert_formats)
      if (const auto expr = format_expr(format->get_ref<const std::string&>(), node)) parts.push_back(*expr);
  }
  if (parts.empty()) return {Scalars::Kind::all};
  return some(pool.both(std::move(parts)));
}

ArrayShape SchemaCompiler::array_keywords(const SchemaNode& node) {
  ArrayShape shape;
  shape.least = count_keyword(node, "minItems", 0);
  shape.most = count_keyword(node, "maxItems", kMany);
  const SchemaJson* items = find_keyword(node, "items");
  const bool is_list = items != nullptr && items->is_array();  // up to draft 2019-09
  const char* const prefix_keyword = is_list ? "items" : "prefixItems";
  if (const SchemaJson* prefix = find_keyword(node, prefix_keyword)) {
    if (!prefix->is_array()) bad_keyword(node, prefix_keyword, "must be an array");
    for (size_t i = 0; i < prefix->size(); ++i)
      shape.prefix.push_back(schema_of(document_.child(node, (*prefix)[i], {prefix_keyword, std::to_string(i)})));
    shape.evaluated = shape.prefix.size();
  }
  const char* const rest_keyword = is_list ? "additionalItems" : "items";
  if (const SchemaJson* rest = find_keyword(node, rest_keyword)) {
    shape.rest = schema_of(document_.child(node, *rest, {rest_keyword}));
    shape.evaluated = kMany;
  }
  if (const SchemaJson* contains = find_keyword(node, "contains")) {
    const SchemaId schema = schema_of(document_.child(node, *contains, {"contains"}));
    const uint64_t least = count_keyword(node, "minContains", 1), most = count_keyword(node, "maxContains", kMany);
    if (least > 0 || most != kMany) shape.contains = {{schema, 0, least, most}};
  }
  if (const SchemaJson* unique = find_keyword(node, "uniqueItems")) {
    if (!unique->is_boolean()) bad_keyword(node, "uniqueItems", "must be true or false");
    shape.unique = unique->get<bool>();
    shape.unique_place = node.place + "/uniqueItems";
  }
  return shape;
}

ObjectShape SchemaCompiler::object_keywords(const SchemaNode& node) {
  ObjectShape shape;
  shape.least = count_keyword(node, "minProperties", 0);
  shape.most = count_keyword(node, "maxProperties", kMany);

  // Patterns cut the names into classes: each class matches some of the patterns and not the others.
  shape.others = {{ExprPool::kAll, kAnyValue}};
  ExprId matched = ExprPool::kNothing;
  if (const SchemaJson* patterns = object_keyword(node, "patternProperties")) {
    if (patterns->size() > kMaxPatterns)
      bad_keyword(node, "patternProperties",
                  fmt::format("has more than {} patterns, which is not supported", kMaxPatterns));
    for (const auto& [pattern, value] : patterns->items()) {
      const SchemaNode& inner = document_.child(node, value, {"patternProperties", pattern});
      const ExprId keys = parse_regex(program.json, pattern, RegexMatch::anywhere, inner.place);
      const SchemaId schema = schema_of(inner);
      matched = pool.either({matched, keys});
      std::vector<ObjectShape::Keys> cut;
      for (const ObjectShape::Keys& other : shape.others) {
        const ExprId in = pool.both({other.keys, keys}), out = pool.without(other.keys, keys);
        if (!pool.is_nothing(in)) cut.push_back({in, both(other.schema, schema)});
        if (!pool.is_nothing(out)) cut.push_back({out, other.schema});
      }
      shape.others = std::move(cut);
    }
  }
  if (const SchemaJson* properties = object_keyword(node, "properties"))
    for (const auto& [name, value] : properties->items()) {
      const SchemaId schema = schema_of(document_.child(node, value, {"properties", name}));
      shape.properties.push_back({name, both(schema, property_schema(shape, name)), false});
      shape.evaluated.insert(name);
    }
  shape.evaluated_keys = matched;
  if (const SchemaJson* additional = find_keyword(node, "additionalProperties")) {
    const SchemaId schema = schema_of(document_.child(node, *additional, {"additionalProperties"}));
    std::vector<ObjectShape::Keys> cut;
    for (const ObjectShape::Keys& other : shape.others) {
      const ExprId in = pool.both({other.keys, matched}), out = pool.without(other.keys, matched);
      if (!pool.is_nothing(in)) cut.push_back({in, other.schema});
      if (!pool.is_nothing(out)) cut.push_back({out, both(other.schema, schema)});
    }
    shape.others = std::move(cut);
    shape.evaluated_keys = ExprPool::kAll;
  }
  const auto property = [&](const std::string& name) -> ObjectShape::Property& {
    const auto found = std::ranges::find(shape.properties, name, &ObjectShape::Property::name);
    if (found != shape.properties.end()) return *found;
    shape.properties.push_back({name, property_schema(shape, name), false});
    return shape.properties.back();
  };
  if (const SchemaJson* required = find_keyword(node, "required"))
    if (!required->is_boolean())  // draft 3 has it so, below properties
      for (const std::string& name : names_in(node, "required", *required)) property(name).required = true;
  for (const char* keyword : {"dependentRequired", "dependencies"})
    if (const SchemaJson* dependent = object_keyword(node, keyword))
      for (const auto& [name, list] : dependent->items()) {
        if (!list.is_array()) {
          if (keyword == std::string_view("dependencies")) continue;  // a schema: see combine.cc
          bad_keyword(node, keyword, "must map names to lists of names");
        }
        property(name);
        for (const std::string& other : names_in(node, keyword, list)) {
          property(other);
          shape.implications.push_back({name, other});
        }
      }
  if (const SchemaJson* names = find_keyword(node, "propertyNames")) {
    // The strings that the schema accepts; names that it does not are allowed no value.
    const Shape& accepted = this->shape(schema_of(document_.child(node, *names, {"propertyNames"})));
    if (accepted.strings.kind != Scalars::Kind::all) {
      const ExprId good = accepted.strings.kind == Scalars::Kind::none ? ExprPool::kNothing : accepted.strings.expr;
      ObjectShape limit;
      limit.others = {{good, kAnyValue}, {pool.complement(good), kNoValue}};
      auto merged = both(shape, limit);
      if (!merged) {  // a required name is refused
        shape.least = 1;
        shape.most = 0;
        return shape;
      }
      shape = std::move(*merged);
    }
  }
  return shape;
}

}  // namespace ingot::grammar
