#include "server/openai/structured_fields.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/printable.h"
#include "server/openai/errors.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;
using Kind = StructuredOutput::Kind;

// A name with what its value says.
struct Source {
  const char* name;
  Kind kind;
};
constexpr auto kBody = std::to_array<Source>({
    {"guided_json", Kind::json_schema},
    {"guided_regex", Kind::regex},
    {"guided_choice", Kind::choice},
    {"guided_grammar", Kind::gbnf},
    {"json_schema", Kind::json_schema},
    {"grammar", Kind::gbnf},
    {"structural_tag", Kind::structural_tag},
});
constexpr auto kStructuredOutputs = std::to_array<Source>({
    {"json", Kind::json_schema},
    {"regex", Kind::regex},
    {"choice", Kind::choice},
    {"grammar", Kind::gbnf},
    {"json_object", Kind::json_object},
    {"structural_tag", Kind::structural_tag},
});

void check_bytes(const StructuredOutput& structured, const RequestLimits& limits) {
  size_t bytes = structured.text.size();
  for (const std::string& choice : structured.choices) bytes += choice.size();
  if (bytes > static_cast<size_t>(limits.max_grammar_bytes))
    fail(structured.param, "string_above_max_length", "may have at most {} bytes (--limit grammar-bytes), got {}",
         limits.max_grammar_bytes, bytes);
}

// Schemas and tags are JSON, or a text that holds it.
std::string json_text(const Json& value, const std::string& param) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object() && !value.is_boolean())
    fail(param, "invalid_type", "must be an object, or a text that holds one, got {}", kind_of(value));
  return value.dump();
}

std::vector<std::string> choice_list(const Json& value, const std::string& param) {
  if (!value.is_array()) fail(param, "invalid_type", "must be a list of texts, got {}", kind_of(value));
  std::vector<std::string> choices;
  for (const Json& element : value) {
    if (!element.is_string())
      fail(fmt::format("{}[{}]", param, choices.size()), "invalid_type", "must be a text, got {}", kind_of(element));
    choices.push_back(element.get<std::string>());
  }
  return choices;
}

// Kind::none: the value says "off".
StructuredOutput read_source(Kind kind, const Json& value, std::string param) {
  StructuredOutput structured{.param = std::move(param)};
  switch (kind) {
    case Kind::json_object:
      if (!value.is_boolean()) fail(structured.param, "invalid_type", "must be true or false, got {}", kind_of(value));
      if (!value.get<bool>()) return structured;
      break;
    case Kind::choice:
      structured.choices = choice_list(value, structured.param);
      if (structured.choices.empty()) return structured;
      break;
    case Kind::json_schema:
    case Kind::structural_tag: structured.text = json_text(value, structured.param); break;
    default:
      if (!value.is_string()) fail(structured.param, "invalid_type", "must be a text, got {}", kind_of(value));
      structured.text = value.get<std::string>();
  }
  if (value == Json("")) return structured;
  structured.kind = kind;
  return structured;
}

StructuredOutput read_json_schema(Fields& fields) {
  fields.string("name");
  fields.string("description");
  const bool strict = fields.boolean("strict").value_or(false);
  const Json* schema = fields.take("schema");
  if (schema == nullptr) fail(fields.path_of("schema"), "missing_required_parameter", "must be given");
  fields.refuse_rest();
  StructuredOutput structured = read_source(Kind::json_schema, *schema, fields.path_of("schema"));
  structured.strict = strict;
  return structured;
}

StructuredOutput read_response_format(const Json& value) {
  Fields fields(value, "response_format");
  const std::string type = fields.string("type").value_or("");
  StructuredOutput structured{.param = "response_format"};
  if (type == "json_object") {
    if (const Json* schema = fields.take("schema"))  // as llama-server has it
      structured = read_source(Kind::json_schema, *schema, fields.path_of("schema"));
    else
      structured.kind = Kind::json_object;
  } else if (type == "json_schema") {
    const Json* inner = fields.take("json_schema");
    if (inner == nullptr) fail(fields.path_of("json_schema"), "missing_required_parameter", "must be given");
    Fields schema(*inner, fields.path_of("json_schema"));
    structured = read_json_schema(schema);
  } else if (type == "structural_tag") {
    Json tag = Json::object();
    for (const char* name : {"structures", "triggers"})
      if (const Json* part = fields.take(name)) tag[name] = *part;
    structured = read_source(Kind::structural_tag, tag, "response_format");
  } else if (type != "text") {
    fail(fields.path_of("type"), "invalid_value", "must be text, json_object, json_schema or structural_tag, got `{}`",
         printable(type, 60));
  }
  fields.refuse_rest();
  return structured;
}

}  // namespace

StructuredOutput read_flat_format(const Json& value, const std::string& path, const RequestLimits& limits) {
  Fields fields(value, path);
  const std::string type = fields.string("type").value_or("");
  StructuredOutput structured{.param = path};
  if (type == "json_schema") {
    structured = read_json_schema(fields);
  } else if (type == "json_object") {
    structured.kind = Kind::json_object;
  } else if (type != "text") {
    fail(fields.path_of("type"), "invalid_value", "must be text, json_object or json_schema, got `{}`",
         printable(type, 60));
  }
  fields.refuse_rest();
  check_bytes(structured, limits);
  return structured;
}

StructuredOutput take_structured(Fields& fields, const RequestLimits& limits) {
  StructuredOutput found;
  const auto add = [&](StructuredOutput structured) {
    if (structured.kind == Kind::none) return;
    if (found.kind != Kind::none)
      fail(structured.param, "invalid_value", "cannot be combined with {}: an answer has one format", found.param);
    check_bytes(structured, limits);
    found = std::move(structured);
  };
  if (const Json* value = fields.take("response_format")) add(read_response_format(*value));
  if (const Json* value = fields.take("structured_outputs")) {
    Fields inner(*value, "structured_outputs");
    for (const Source& source : kStructuredOutputs)
      if (const Json* given = inner.take(source.name))
        add(read_source(source.kind, *given, inner.path_of(source.name)));
    for (const char* name : {"disable_any_whitespace", "disable_additional_properties"})
      if (inner.boolean(name).value_or(false))
        fail(inner.path_of(name), "unsupported_parameter", "is not supported by this server: say it in the schema");
    inner.boolean("disable_fallback");  // there is nothing to fall back to
    inner.refuse_rest();
  }
  for (const Source& source : kBody)
    if (const Json* given = fields.take(source.name)) add(read_source(source.kind, *given, source.name));
  return found;
}

}  // namespace ingot::server::openai
