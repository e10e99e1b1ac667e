#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ingot::grammar {

using SchemaJson = nlohmann::ordered_json;

// A schema at its place in the document.
struct SchemaNode {
  const SchemaJson* value;
  std::string place;  // "#/properties/a"
  std::string base;   // the URI that references are relative to
};

// A schema document: where each $id and $anchor lies, and what a $ref refers to.
class SchemaDocument {
 public:
  SchemaDocument(const SchemaJson& root, std::string place);

  const SchemaNode& root() const { return nodes_.at(root_); }
  // The schema below a node: `keys` lead from it, "properties", "a". Nodes live as long as the document.
  const SchemaNode& child(const SchemaNode& node, const SchemaJson& value,
                          std::initializer_list<std::string_view> keys);
  // Throws for what is not in the document.
  const SchemaNode& refer(const SchemaNode& from, const std::string& reference, const char* keyword);

 private:
  const SchemaNode& add(const SchemaJson& value, std::string place, const std::string& base);
  void find_names(const SchemaJson& value, const std::string& place, const std::string& base, int depth);

  const SchemaJson* root_;
  std::unordered_map<const SchemaJson*, SchemaNode> nodes_;
  struct Named {
    const SchemaJson* value;
    std::string place, base;
  };
  std::map<std::string, Named> names_;  // by URI, with "#anchor" for anchors
};

}  // namespace ingot::grammar
