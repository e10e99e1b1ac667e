#include "grammar/schema/compiler.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/json_integer.h"
#include "core/printable.h"
#include "grammar/regex.h"
#include "grammar/schema/number.h"
#include "grammar/schema/schema.h"

namespace ingot::grammar {
namespace {

// Keywords that assert something which is not enforced here. What is no keyword, or asserts nothing, is passed over.
constexpr std::string_view kDeclined[] = {"$dynamicRef", "$recursiveRef", "$recursiveAnchor"};

bool mentions(const SchemaJson& value, std::string_view keyword) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      if (key == keyword || mentions(inner, keyword)) return true;
  } else if (value.is_array()) {
    for (const SchemaJson& inner : value)
      if (mentions(inner, keyword)) return true;
  }
  return false;
}

}  // namespace

void bad_keyword(const SchemaNode& node, std::string_view keyword, const std::string& reason) {
  throw_bad_parameter(node.place + "/" + std::string(keyword), "{}", reason);
}

uint64_t count_keyword(const SchemaNode& node, std::string_view keyword, uint64_t otherwise) {
  const auto found = node.value->find(keyword);
  if (found == node.value->end()) return otherwise;
  const auto value = json_integer(*found);
  if (!value || *value < 0) bad_keyword(node, keyword, "must be a whole number of 0 or more");
  return static_cast<uint64_t>(*value);
}

struct SchemaCompiler::Constant {
  std::unique_ptr<SchemaJson> schema;
  SchemaNode node;
};

SchemaCompiler::SchemaCompiler(Program& the_program, std::shared_ptr<const SchemaJson> root, const Options& the_options,
                               std::string place)
    : program(the_program),
      pool(the_program.pool),
      options(the_options),
      root_(std::move(root)),
      document_(*root_, std::move(place)) {
  entries_.push_back({.kind = Entry::Kind::any});
  entries_.push_back({.kind = Entry::Kind::none});
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.add(static_cast<uint8_t>(c));
  white_space = pool.repeat(pool.bytes(spaces), 0, options.max_white_space);
  NumberExprs numbers(pool);
  any_number = numbers.any();
  plain_number = numbers.plain();
  short_number = numbers.with_digits(40, 17);
  shortest = options.strict || options.short_numbers;
  plain_string = program.json.any_text();
  // Any spelling: every escape of JSON, but no half of a surrogate pair.
  ByteSet brief;
  for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) brief.add(static_cast<uint8_t>(c));
  const ExprId escape = pool.concat(
      pool.literal("\\"),
      pool.either({pool.bytes(brief),
                   pool.concat(pool.literal("u"), pool.either({hex4(pool, 0, 0xD7FF), hex4(pool, 0xE000, 0xFFFF)}))}));
  any_string = pool.repeat(pool.either({program.json.any(), escape}), 0);
  // Up to draft 7 the words beside a $ref are passed over.
  if (root_->is_object() && root_->contains("$schema") && (*root_)["$schema"].is_string())
    for (const char* draft : {"draft-03", "draft-04", "draft-06", "draft-07"})
      if ((*root_)["$schema"].get_ref<const std::string&>().find(draft) != std::string::npos) ref_stands_alone_ = true;
  uses_unevaluated_ = mentions(*root_, "unevaluatedProperties") || mentions(*root_, "unevaluatedItems");
}

SchemaCompiler::~SchemaCompiler() = default;

RuleId SchemaCompiler::compile() {
  const SchemaId root = schema_of(document_.root());
  try {
    check_reachable(root);
    if (!is_satisfiable(root)) throw_bad_parameter(document_.root().place, "is satisfied by no value");
    return rule(root);
  } catch (const EndlessReference& endless) {
    throw_bad_parameter(endless.place, "refers to itself without end");
  }
}

// Makes every shape that a text could need, so that faults are found now and not while a model writes.
void SchemaCompiler::check_reachable(SchemaId root) {
  std::vector<SchemaId> open{root};
  std::vector<uint8_t> seen;
  const auto visit = [&](SchemaId id) {
    if (seen.size() <= id) seen.resize(id + 1);
    if (seen[id] != 0) return;
    seen[id] = 1;
    open.push_back(id);
  };
  while (!open.empty()) {
    const SchemaId id = open.back();
    open.pop_back();
    const Shape& found = shape(id);
    is_satisfiable(id);
    for (const ArrayShape& array : found.arrays) {
      for (const SchemaId item : array.prefix) visit(item);
      visit(array.rest);
      // Sets of `contains` that an item matches at once are looked at when they are met.
      for (const ArrayShape::Contains& contains : array.contains)
        for (uint64_t i = 0; i <= array.prefix.size(); ++i) {
          visit(both(array.at(i), contains.schema));
          if (contains.most != kMany) visit(both(array.at(i), complement(contains.schema)));
        }
      if (!array.contains.empty()) check_counts(array, id);
      if (array.unique && array.most > 1 &&
          !(array.prefix.empty() && array.contains.empty() && shape(array.rest).listed))
        throw_bad_parameter(array.unique_place, "is not supported unless the items are a list of scalars");
    }
    for (const ObjectShape& object : found.objects) {
      check_least_members(object, id);
      for (const auto& property : object.properties) visit(property.schema);
      for (const auto& keys : object.others) visit(keys.schema);
      for (const auto& some : object.some) {
        for (const auto& keys : object.others)
          visit(both(keys.schema, some.schema));  // sets of them: when they are met
        for (const auto& property : object.properties) visit(both(property.schema, some.schema));
      }
    }
  }
}

// Items of more than one kind are counted one by one.
void SchemaCompiler::check_counts(const ArrayShape& array, SchemaId id) {
  constexpr uint64_t kMost = 500;
  bool fits = array.least <= kMost;
  for (const ArrayShape::Contains& contains : array.contains) fits = fits && contains.least <= kMost;
  if (!fits)
    throw_bad_parameter(
        (entries_[id].node != nullptr ? entries_[id].node->place : document_.root().place) + "/contains",
        "beside so many items is not supported");
}

// Free names may be written twice, and a reader keeps one: more than one of them cannot be demanded.
void SchemaCompiler::check_least_members(const ObjectShape& object, SchemaId id) {
  const auto required = static_cast<uint64_t>(
      std::ranges::count_if(object.properties, [](const auto& property) { return property.required; }));
  if (object.least <= required + 1) return;
  if (std::ranges::any_of(object.others, [&](const auto& keys) { return is_satisfiable(keys.schema); }))
    throw_bad_parameter(
        (entries_[id].node != nullptr ? entries_[id].node->place : document_.root().place) + "/minProperties",
        "of more than 1 is not supported where any name may be a property");
}

SchemaId SchemaCompiler::schema_of(const SchemaNode& node) {
  if (node.value->is_boolean()) return node.value->get<bool>() ? kAnyValue : kNoValue;
  if (!node.value->is_object()) throw_bad_parameter(node.place, "must be a schema: an object, true or false");
  if (node.value->empty()) return kAnyValue;
  return intern(Entry::Kind::node, 0, 0, &node);
}

Shape SchemaCompiler::keywords(const SchemaNode& node) {
  for (const std::string_view keyword : kDeclined)
    if (node.value->contains(keyword)) bad_keyword(node, keyword, "is not supported");
  if (ref_stands_alone_ && node.value->contains("$ref")) return combine_keywords(node, Shape::any());
  Shape shape = Shape::any();
  shape.numbers = number_keywords(node);
  shape.strings = string_keywords(node);
  shape.arrays = {array_keywords(node)};
  shape.objects = {object_keywords(node)};
  restrict_types(node, shape);
  if (const auto value = node.value->find("const"); value != node.value->end())
    shape = both(shape, value_shape(*value, node));
  if (const auto values = node.value->find("enum"); values != node.value->end()) {
    if (!values->is_array()) bad_keyword(node, "enum", "must be an array");
    Shape any = Shape::empty_list();
    for (const SchemaJson& value : *values) any = either(std::move(any), value_shape(value, node));
    shape = both(shape, any);
  }
  shape = combine_keywords(node, std::move(shape));
  unevaluated_keywords(node, shape);
  return shape;
}

void SchemaCompiler::restrict_types(const SchemaNode& node, Shape& shape) {
  const auto found = node.value->find("type");
  if (found == node.value->end()) return;
  std::vector<std::string> names;
  const auto add = [&](const SchemaJson& name) {
    if (!name.is_string()) bad_keyword(node, "type", "must be a name or a list of names");
    names.push_back(name.get<std::string>());
  };
  if (found->is_array())
    for (const SchemaJson& name : *found) add(name);
  else
    add(*found);
  const Shape given = std::move(shape);
  shape = Shape::none();
  for (const std::string& name : names) {
    if (name == "null") {
      shape.null = given.null;
    } else if (name == "boolean") {
      shape.yes = given.yes;
      shape.no = given.no;
    } else if (name == "number") {
      shape.numbers = given.numbers;
    } else if (name == "integer") {
      if (std::ranges::find(names, "number") == names.end())
        shape.numbers = both(given.numbers, some(NumberExprs(pool).integer(shortest)), plain_number);
    } else if (name == "string") {
      shape.strings = given.strings;
    } else if (name == "array") {
      shape.arrays = given.arrays;
    } else if (name == "object") {
      shape.objects = given.objects;
    } else {
      bad_keyword(node, "type", "is " + printable(name) + ", which is no type of JSON");
    }
  }
}

// The values equal to one.
Shape SchemaCompiler::value_shape(const SchemaJson& value, const SchemaNode& node) {
  Shape shape = Shape::empty_list();
  if (value.is_null()) {
    shape.null = true;
  } else if (value.is_boolean()) {
    (value.get<bool>() ? shape.yes : shape.no) = true;
  } else if (value.is_number()) {
    shape.numbers = some(NumberExprs(pool).equal(parse_decimal(value.dump()), shortest));
  } else if (value.is_string()) {
    shape.strings = some(program.json.literal(value.get_ref<const std::string&>()));
  } else if (value.is_array()) {
    shape.listed = false;
    ArrayShape array{.rest = kNoValue, .least = value.size(), .most = value.size()};
    for (const SchemaJson& item : value) array.prefix.push_back(intern_value(item, node));
    shape.arrays = {std::move(array)};
  } else {
    shape.listed = false;
    ObjectShape object;
    object.others = {{ExprPool::kAll, kNoValue}};
    for (const auto& [key, item] : value.items()) object.properties.push_back({key, intern_value(item, node), true});
    object.least = object.most = value.size();
    shape.objects = {std::move(object)};
  }
  if (shape.listed) shape.values = {scalars_expr(shape)};
  return shape;
}

// A value within a value of `enum` or `const`, as the schema that has it as its constant.
SchemaId SchemaCompiler::intern_value(const SchemaJson& value, const SchemaNode& node) {
  auto& kept = constants_.emplace_back(std::make_unique<Constant>());
  kept->schema = std::make_unique<SchemaJson>(SchemaJson{{"const", value}});
  kept->node = {kept->schema.get(), node.place, node.base};
  return intern(Entry::Kind::node, 0, 0, &kept->node);
}

RuleId compile_schema(Program& program, std::string_view text, const Options& options, const std::string& base) {
  program.budget.check(text.size(), program.budget.limits().max_source_bytes, "bytes of source");
  std::shared_ptr<const SchemaJson> root;
  try {
    root = std::make_shared<const SchemaJson>(
        parse_ordered_json(text, "schema", {.max_bytes = program.budget.limits().max_source_bytes, .max_depth = 128}));
  } catch (const JsonError& error) {
    throw_bad_parameter(base, "{}", error.reason());
  }
  auto compiler = std::make_shared<SchemaCompiler>(program, std::move(root), options, base);
  const RuleId rule = compiler->compile();
  program.owned.push_back(std::move(compiler));
  return rule;
}

}  // namespace ingot::grammar
