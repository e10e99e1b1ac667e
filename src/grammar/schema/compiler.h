#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/grammar.h"
#include "grammar/program.h"
#include "grammar/schema/document.h"
#include "grammar/schema/shape.h"

namespace ingot::grammar {

// From a document to shapes, and from shapes to rules. Shapes of values within values are made when they are needed.
class SchemaCompiler {
 public:
  SchemaCompiler(Program& program, std::shared_ptr<const SchemaJson> root, const Options& options, std::string place);
  ~SchemaCompiler();

  RuleId compile();

  // --- numbered schemas (algebra.cc)
  SchemaId schema_of(const SchemaNode& node);
  SchemaId both(SchemaId a, SchemaId b);
  SchemaId complement(SchemaId a);
  const Shape& shape(SchemaId id);
  bool is_satisfiable(SchemaId id);      // some finite value is accepted
  bool may_be_satisfiable(SchemaId id);  // false only for certain; safe while shapes are being made
  bool may_be_satisfiable(const Shape& shape);

  // --- sets of values (shape.cc)
  Scalars both(const Scalars& a, const Scalars& b, ExprId universe);
  Scalars complement(const Scalars& a, ExprId universe);
  Scalars some(ExprId expr);
  Shape both(const Shape& a, const Shape& b);
  Shape either(Shape a, Shape b);
  Shape complement(const Shape& a);
  SchemaId property_schema(const ObjectShape& object, const std::string& name);
  ExprId names_expr(const ObjectShape& object);  // of its properties

  // --- keywords (compiler.cc, keywords.cc, combine.cc)
  Shape keywords(const SchemaNode& node);
  Scalars number_keywords(const SchemaNode& node);
  Scalars string_keywords(const SchemaNode& node);
  ArrayShape array_keywords(const SchemaNode& node);
  ObjectShape object_keywords(const SchemaNode& node);
  void restrict_types(const SchemaNode& node, Shape& shape);
  Shape value_shape(const SchemaJson& value, const SchemaNode& node);
  SchemaId intern_value(const SchemaJson& value, const SchemaNode& node);
  Shape combine_keywords(const SchemaNode& node, Shape shape);
  void unevaluated_keywords(const SchemaNode& node, Shape& shape);
  std::optional<ExprId> format_expr(std::string_view name, const SchemaNode& node);

  // --- rules (object_rules.cc, array_rules.cc)
  struct Symbol {
    bool is_lexeme;
    uint32_t id;
  };
  Symbol symbol(SchemaId id);
  RuleId rule(SchemaId id);
  void add_symbol(StateId from, Symbol symbol, StateId to);
  void add_array(const ArrayShape& shape, RuleId rule, StateId from, StateId to);
  void add_object(const ObjectShape& shape, RuleId rule, StateId from, StateId to);
  ExprId scalars_expr(const Shape& shape);

  Program& program;
  ExprPool& pool;
  Options options;
  // Expressions that everything shares.
  ExprId white_space, any_number, plain_number, short_number, any_string, plain_string;
  bool shortest;  // 1, not 1.0

 private:
  struct Entry {
    enum class Kind : uint8_t { any, none, node, both, complement };
    Kind kind;
    SchemaId a = 0, b = 0;
    const SchemaNode* node = nullptr;
    std::unique_ptr<Shape> shape = nullptr;
    bool under_way = false;
    std::optional<bool> satisfiable = std::nullopt;
    std::optional<RuleId> rule = std::nullopt;
  };
  SchemaId intern(Entry::Kind kind, SchemaId a, SchemaId b, const SchemaNode* node);
  Shape make_shape(SchemaId id);
  bool satisfiable(SchemaId id, size_t depth, size_t& lowest);
  bool satisfiable(const Shape& shape, size_t depth, size_t& lowest);
  bool array_satisfiable(const ArrayShape& shape, size_t depth, size_t& lowest);
  bool object_satisfiable(const ObjectShape& shape, size_t depth, size_t& lowest);
  void check_reachable(SchemaId root);
  void check_counts(const ArrayShape& array, SchemaId id);
  void check_least_members(const ObjectShape& object, SchemaId id);

  std::vector<ArrayShape> both(const std::vector<ArrayShape>& a, const std::vector<ArrayShape>& b);
  std::vector<ObjectShape> both(const std::vector<ObjectShape>& a, const std::vector<ObjectShape>& b);
  std::optional<ArrayShape> both(const ArrayShape& a, const ArrayShape& b);
  std::optional<ObjectShape> both(const ObjectShape& a, const ObjectShape& b);
  std::vector<ArrayShape> complement(const ArrayShape& a);
  std::vector<ObjectShape> complement(const ObjectShape& a);
  Shape one_of(const SchemaNode& node, const std::vector<SchemaId>& branches, const Shape& context);
  Shape any_of(const SchemaNode& node, const std::vector<SchemaId>& branches);

  struct Constant;
  std::vector<std::unique_ptr<Constant>> constants_;
  std::shared_ptr<const SchemaJson> root_;
  SchemaDocument document_;
  std::vector<Entry> entries_;
  HashIndex index_;
  std::unordered_map<uint32_t, size_t> in_search_;  // of satisfiable: depth of those under way
  int shape_depth_ = 0;                             // shapes under way
  bool uses_unevaluated_ = false;
  bool ref_stands_alone_ = false;
};

// A schema whose shape needs its own shape first.
struct EndlessReference {
  std::string place;
};

// Of a keyword's value: throws Error(bad_call) with the place.
[[noreturn]] void bad_keyword(const SchemaNode& node, std::string_view keyword, const std::string& reason);
uint64_t count_keyword(const SchemaNode& node, std::string_view keyword, uint64_t otherwise);

}  // namespace ingot::grammar
