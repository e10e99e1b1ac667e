#include "text/calls/tool_schemas.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace ingot {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr int kMaxSchemaDepth = 16;  // of $ref and choices within each other

const SchemaJson* member(const SchemaJson& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

void add_type(ValueKinds& kinds, std::string_view type) {
  kinds.string |= type == "string";
  kinds.number |= type == "number" || type == "integer" || type == "float" || type == "int";
  kinds.boolean |= type == "boolean" || type == "bool";
  kinds.null |= type == "null";
  kinds.structure |= type == "object" || type == "array";
}

void add_type_of(ValueKinds& kinds, const SchemaJson& value) {
  if (value.is_string()) add_type(kinds, "string");
  if (value.is_number()) add_type(kinds, "number");
  if (value.is_boolean()) add_type(kinds, "boolean");
  if (value.is_null()) add_type(kinds, "null");
  if (value.is_structured()) add_type(kinds, "object");
}

// What `schema` says; false where it says nothing of the kind.
bool add_kinds(ValueKinds& kinds, const SchemaJson& schema, const SchemaJson& root, int depth) {
  if (depth > kMaxSchemaDepth) return false;
  if (const SchemaJson* type = member(schema, "type")) {
    if (type->is_string()) add_type(kinds, type->get_ref<const std::string&>());
    if (type->is_array())
      for (const SchemaJson& one : *type)
        if (one.is_string()) add_type(kinds, one.get_ref<const std::string&>());
    return true;
  }
  if (const SchemaJson* values = member(schema, "enum"); values != nullptr && values->is_array()) {
    for (const SchemaJson& value : *values) add_type_of(kinds, value);
    return true;
  }
  if (const SchemaJson* value = member(schema, "const")) {
    add_type_of(kinds, *value);
    return true;
  }
  if (const SchemaJson* ref = member(schema, "$ref"); ref != nullptr && ref->is_string()) {
    const std::string& place = ref->get_ref<const std::string&>();
    if (!place.starts_with("#/")) return false;
    const auto pointer = SchemaJson::json_pointer(place.substr(1));
    return root.contains(pointer) && add_kinds(kinds, root[pointer], root, depth + 1);
  }
  bool known = false;
  for (const char* choice : {"anyOf", "oneOf", "allOf"}) {
    const SchemaJson* schemas = member(schema, choice);
    if (schemas == nullptr || !schemas->is_array()) continue;
    for (const SchemaJson& one : *schemas) known = add_kinds(kinds, one, root, depth + 1) || known;
  }
  if (!known && (member(schema, "properties") != nullptr || member(schema, "items") != nullptr)) {
    kinds.structure = true;
    return true;
  }
  return known;
}

ValueKinds kinds_of(const SchemaJson& schema, const SchemaJson& root) {
  ValueKinds kinds;
  try {
    if (add_kinds(kinds, schema, root, 0)) return kinds;
  } catch (const SchemaJson::exception&) {  // a $ref that is no pointer
  }
  return {.string = true};
}

}  // namespace

ToolSchemas::ToolSchemas(const nlohmann::ordered_json& tools) {
  if (!tools.is_array()) throw_error(ErrorKind::bad_call, "tools: expected an array, got {}", tools.type_name());
  for (size_t i = 0; i < tools.size(); ++i) {
    const SchemaJson* inner = member(tools[i], "function");
    const SchemaJson& tool = inner != nullptr ? *inner : tools[i];
    const SchemaJson* name = member(tool, "name");
    if (name == nullptr || !name->is_string())
      throw_error(ErrorKind::bad_call, "tools[{}]: a function with a name was expected", i);
    Parameters& parameters = functions_[name->get<std::string>()];
    const SchemaJson* schema = member(tool, "parameters");
    if (schema == nullptr) schema = member(tool, "input_schema");
    const SchemaJson* properties = schema == nullptr ? nullptr : member(*schema, "properties");
    if (properties == nullptr || !properties->is_object()) continue;
    for (const auto& property : properties->get_ref<const SchemaJson::object_t&>())
      parameters[property.first] = kinds_of(property.second, *schema);
  }
}

const ValueKinds* ToolSchemas::find(std::string_view function, std::string_view parameter) const {
  const auto found = functions_.find(function);
  if (found == functions_.end()) return nullptr;
  const auto kinds = found->second.find(parameter);
  return kinds == found->second.end() ? nullptr : &kinds->second;
}

}  // namespace ingot
