#include "server/openai/openapi.h"

#include <nlohmann/json.hpp>

#include "core/sampling_ranges.h"
#include "server/ascii.h"
#include "server/openai/answer.h"

namespace ingot::server::openai {
namespace {

using Json = nlohmann::ordered_json;

Json number_schema(const Parameter& parameter) {
  const SamplingRange range = range_of(parameter);
  return {{"type", "number"}, {range.above ? "exclusiveMinimum" : "minimum", range.least}, {"maximum", range.most}};
}

Json integer_schema(const Parameter& parameter, const RequestLimits& limits) {
  Json schema = {{"type", "integer"}};
  if (parameter.least != std::numeric_limits<int64_t>::min()) schema["minimum"] = parameter.least;
  const int64_t most = parameter.limit != nullptr ? limits.*parameter.limit : parameter.most;
  if (most != std::numeric_limits<int64_t>::max()) schema["maximum"] = most;
  return schema;
}

// The only value that is accepted where it means "off".
Json off_schema(Off off) {
  switch (off) {
    case Off::empty: return Json::parse(R"({"anyOf":[{"const":""},{"const":[]},{"const":{}}]})");
    case Off::no_choice: return {{"enum", {"none", "auto"}}};
    case Off::text_only: return {{"const", {"text"}}};
    case Off::is_true: return {{"const", true}};
    case Off::is_false: return {{"const", false}};
    case Off::medium: return {{"const", "medium"}};
    default: return {{"type", "null"}};
  }
}

Json value_schema(const Parameter& parameter, const RequestLimits& limits) {
  if (parameter.off != Off::used && parameter.off != Off::always) return off_schema(parameter.off);
  switch (parameter.type) {
    case ValueType::boolean: return {{"type", "boolean"}};
    case ValueType::integer: return integer_schema(parameter, limits);
    case ValueType::number: return number_schema(parameter);
    case ValueType::text: return {{"type", "string"}};
    case ValueType::texts:
      return Json::parse(R"({"anyOf":[{"type":"string","minLength":1},
                                      {"type":"array","items":{"type":"string","minLength":1}}]})");
    case ValueType::tokens: return Json::parse(R"({"type":"array","items":{"type":"integer","minimum":0}})");
    case ValueType::object: return {{"type", "object"}};
    case ValueType::other: return Json::parse(parameter.schema);
  }
  return Json::object();
}

Json body_schema(EndpointSet endpoint, const RequestLimits& limits) {
  Json properties = Json::object(), required = Json::array();
  for (const Parameter& parameter : parameter_table()) {
    if ((parameter.endpoints & endpoint) == 0) continue;
    Json schema = value_schema(parameter, limits);
    if (!parameter.required && schema != Json{{"type", "null"}})
      schema = {{"anyOf", {std::move(schema), {{"type", "null"}}}}};  // null is as good as absent
    if (!parameter.meaning.empty()) schema["description"] = parameter.meaning;
    if (parameter.off == Off::always) schema["description"] = "accepted, without effect";
    properties[std::string(parameter.name)] = std::move(schema);
    if (parameter.required) required.push_back(parameter.name);
  }
  Json body = {{"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  if (!required.empty()) body["required"] = std::move(required);
  return body;
}

Json operation(const RouteInfo& route, const RequestLimits& limits) {
  const bool streams = (route.endpoint & (kChatEndpoint | kCompletionsEndpoint | kInfillEndpoint | kResponsesEndpoint |
                                          kMessagesEndpoint)) != 0;
  const Json any = {{"application/json", {{"schema", {{"type", "object"}}}}}};
  const Json error = {{"description", "what was wrong"},
                      {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
  Json answer = any;
  if (streams) answer["text/event-stream"] = {{"schema", {{"type", "string"}}}};
  if (route.path == "/metrics") answer = {{"text/plain", {{"schema", {{"type", "string"}}}}}};
  if (route.path == "/") answer = {{"text/html", {{"schema", {{"type", "string"}}}}}};
  if (route.path == "/katex.js") answer = {{"text/javascript", {{"schema", {{"type", "string"}}}}}};
  if (route.path == "/katex.css") answer = {{"text/css", {{"schema", {{"type", "string"}}}}}};
  Json operation = {
      {"summary", route.summary},
      {"responses", {{"200", {{"description", "the answer"}, {"content", std::move(answer)}}}, {"default", error}}}};
  if (const size_t open = route.path.find('{'); open != route.path.npos) {
    const std::string name(route.path.substr(open + 1, route.path.find('}') - open - 1));
    operation["parameters"] = Json::array(
        {{{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}, {"minLength", 1}}}}});
  }
  if (route.endpoint != 0)
    operation["requestBody"] = {{"required", true},
                                {"content", {{"application/json", {{"schema", body_schema(route.endpoint, limits)}}}}}};
  return operation;
}

}  // namespace

std::string openapi_json(std::span<const RouteInfo> routes, const std::string& version, const RequestLimits& limits) {
  Json paths = Json::object();
  for (const RouteInfo& route : routes)
    paths[std::string(route.path)][ascii_lower(route.method)] = operation(route, limits);
  const Json error = Json::parse(R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",
      "required":["message","type","param","code"],"properties":{"message":{"type":"string"},"type":{"type":"string"},
      "param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})");
  return dump(
      {{"openapi", "3.1.0"},
       {"info", {{"title", "Ingot"}, {"version", version}}},
       {"paths", std::move(paths)},
       {"components",
        {{"schemas", {{"Error", error}}}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}},
       {"security", Json::array({{{"key", Json::array()}}, Json::object()})}});
}

}  // namespace ingot::server::openai
