// The table of parameters, what the endpoints take, /openapi.json and the documents say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "server/openai/parameters.h"
#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

using openai::Off;
using openai::Parameter;
using openai::ValueType;

struct BodyEndpoint {
  openai::EndpointSet bit;
  const char* path;
  Json least;  // what a request must have
};
const std::vector<BodyEndpoint>& body_endpoints() {
  static const Json messages = {{{"role", "user"}, {"content", "a"}}};
  static const std::vector<BodyEndpoint> all = {
      {openai::kChatEndpoint, kChat, {{"messages", messages}}},
      {openai::kCompletionsEndpoint, kText, {{"prompt", "a"}}},
      {openai::kInfillEndpoint, "/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}}},
      {openai::kTokenizeEndpoint, "/tokenize", {{"messages", messages}}},
      {openai::kDetokenizeEndpoint, "/detokenize", {{"tokens", {1}}}},
      {openai::kTemplateEndpoint, "/apply-template", {{"messages", messages}}},
      {openai::kEmbeddingsEndpoint, "/v1/embeddings", {{"input", "a"}}},
      {openai::kRerankEndpoint, "/v1/rerank", {{"query", "a"}, {"documents", {"b"}}}},
      {openai::kResponsesEndpoint, "/v1/responses", {{"input", "a"}}},
      {openai::kMessagesEndpoint, "/v1/messages", {{"messages", messages}, {"max_tokens", 1}}},
      {openai::kCountEndpoint, "/v1/messages/count_tokens", {{"messages", messages}}},
  };
  return all;
}

// A value that a schema of the table allows.
Json example(const Json& schema) {
  if (schema.contains("const")) return schema["const"];
  if (schema.contains("enum")) return schema["enum"][0];
  if (schema.contains("anyOf")) return example(schema["anyOf"][0]);
  const std::string type = schema.value("type", "");
  if (type == "null") return nullptr;
  if (type == "boolean") return true;
  if (type == "integer") return std::max<int64_t>(1, schema.value("minimum", int64_t{1}));
  if (type == "number") return schema.value("minimum", 0.5) > 0 ? schema.value("minimum", 0.5) : 0.5;
  if (type == "string") return "tiny";
  if (type == "array") return schema.value("minItems", 0) > 0 ? Json::array({example(schema["items"])}) : Json::array();
  Json object = Json::object();
  if (schema.contains("required"))
    for (const Json& name : schema["required"])
      object[name.get<std::string>()] = example(schema["properties"][name.get<std::string>()]);
  return object;
}

class OpenaiParameters : public ::testing::Test {
 protected:
  OpenaiParameters() {
    rig_.generator->tokenizer_now = tiny_tokenizer(true);
    rig_.generator->limits_now.pooling.kind = Pooling::Kind::last;
    rig_.generator->model_now.hidden = 4;
    rig_.generator->on_submit = [](ScriptedGeneration& generation) {
      if (generation.request.embed) generation.push({.embedding = {1, 2, 3, 4}});
      generation.finish();
    };
    rig_.api->attach(rig_.generator);
    document_ = Json::parse(rig_.ask("GET", "/openapi.json").body);
  }

  Json properties(const char* path) const {
    return document_["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"];
  }
  // What a body with one parameter more is answered: the error's code, empty for none of this parameter.
  std::string fault(const BodyEndpoint& endpoint, const std::string& name, const Json& value) {
    Json body = endpoint.least;
    body[name] = value;
    const HttpReply reply = rig_.post(endpoint.path, body);
    EXPECT_LT(reply.status, 500) << endpoint.path << ", " << name << ": " << reply.body;
    if (reply.status == 200) return "";
    const Json error = Json::parse(reply.body)["error"];
    const std::string message = error["message"];
    if (!message.starts_with(name)) return "";
    if (error.contains("code")) return error["code"];
    // Anthropic's errors have no code.
    if (message.find("is not a parameter") != message.npos) return "unknown_parameter";
    return message.find("is not supported") != message.npos ? "unsupported_parameter" : "invalid";
  }

  Rig rig_{{.priority_scheduling = true}};
  Json document_;
};

TEST_F(OpenaiParameters, EachListedNameIsTaken) {
  for (const BodyEndpoint& endpoint : body_endpoints()) {
    const Json listed = properties(endpoint.path);
    for (const Parameter& parameter : openai::parameter_table()) {
      if ((parameter.endpoints & endpoint.bit) == 0) continue;
      const std::string name(parameter.name);
      ASSERT_TRUE(listed.contains(name)) << endpoint.path << ", " << name;
      const Json value = example(listed[name]);
      const std::string code = fault(endpoint, name, value);
      EXPECT_NE(code, "unknown_parameter") << endpoint.path << ", " << name;
      EXPECT_NE(code, "unsupported_parameter") << endpoint.path << ", " << name << ": " << value;
      EXPECT_NE(code, "invalid_type") << endpoint.path << ", " << name << ": " << value;
    }
  }
}

TEST_F(OpenaiParameters, EveryOtherNameIsRefused) {
  for (const BodyEndpoint& endpoint : body_endpoints()) {
    EXPECT_EQ(fault(endpoint, "a_name_nobody_knows", 1), "unknown_parameter") << endpoint.path;
    for (const Parameter& parameter : openai::parameter_table()) {
      const std::string name(parameter.name);
      if (openai::find_parameter(name, endpoint.bit) != nullptr) continue;
      EXPECT_EQ(fault(endpoint, name, 1), "unknown_parameter") << endpoint.path << ", " << name;
    }
  }
}

TEST_F(OpenaiParameters, NoNameIsListedTwiceForAnEndpoint) {
  std::set<std::pair<openai::EndpointSet, std::string_view>> seen;
  for (const Parameter& parameter : openai::parameter_table())
    for (const BodyEndpoint& endpoint : body_endpoints())
      if ((parameter.endpoints & endpoint.bit) != 0) {
        EXPECT_TRUE(seen.emplace(endpoint.bit, parameter.name).second) << endpoint.path << ", " << parameter.name;
      }
}

TEST_F(OpenaiParameters, RequiredNamesAreRequired) {
  for (const BodyEndpoint& endpoint : body_endpoints())
    for (const Parameter& parameter : openai::parameter_table()) {
      if (!parameter.required || (parameter.endpoints & endpoint.bit) == 0) continue;
      Json body = endpoint.least;
      body.erase(std::string(parameter.name));
      const HttpReply reply = rig_.post(endpoint.path, body);
      EXPECT_EQ(reply.status, 400);
      EXPECT_THAT(Json::parse(reply.body)["error"]["message"].get<std::string>(),
                  ::testing::StartsWith(std::string(parameter.name) + " "))
          << endpoint.path;
    }
}

// Bounds of the document are those of the endpoint.
TEST_F(OpenaiParameters, BoundsHold) {
  for (const BodyEndpoint& endpoint : body_endpoints()) {
    const Json listed = properties(endpoint.path);
    for (const auto& [name, schema] : listed.items()) {
      const Json& inner = schema.contains("anyOf") ? schema["anyOf"][0] : schema;
      if (!inner.contains("type") || (inner["type"] != "integer" && inner["type"] != "number")) continue;
      const double step = inner["type"] == "integer" ? 1 : 0.25;
      for (const auto& [key, sign] : {std::pair("minimum", -1.0), std::pair("maximum", 1.0)}) {
        if (!inner.contains(key)) continue;
        const Json beyond = inner["type"] == "integer" ? Json(inner[key].get<int64_t>() + static_cast<int64_t>(sign))
                                                       : Json(inner[key].get<double>() + sign * step);
        EXPECT_NE(fault(endpoint, name, beyond), "") << endpoint.path << ", " << name << " " << beyond;
      }
    }
  }
}

TEST_F(OpenaiParameters, DocumentHasEveryRoute) {
  EXPECT_EQ(document_["openapi"], "3.1.0");
  for (const char* path : {"/v1/models/{model}", "/health", "/metrics", "/openapi.json"})
    EXPECT_TRUE(document_["paths"][path].contains("get")) << path;
  for (const BodyEndpoint& endpoint : body_endpoints())
    EXPECT_TRUE(document_["paths"][endpoint.path].contains("post")) << endpoint.path;
  EXPECT_FALSE(document_["paths"].contains("/debug/integrity")) << "it is not served";
}

// Names between backquotes.
std::set<std::string> quoted(const std::string& text) {
  static const std::regex pattern("`([a-z_0-9*]+)");
  std::set<std::string> names;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match)
    names.insert((*match)[1]);
  return names;
}

// The section of a document with this heading.
std::string section(const std::string& heading, const std::string& document = "server.md") {
  std::stringstream text;
  text << std::ifstream(INGOT_FIXTURES "/../../docs/" + document).rdbuf();
  const std::string all = text.str();
  const size_t begin = all.find("\n" + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  return all.substr(begin, all.find("\n#", begin + heading.size()) - begin);
}

std::set<std::string> names_of(openai::EndpointSet endpoints) {
  std::set<std::string> names;
  for (const Parameter& parameter : openai::parameter_table())
    if ((parameter.endpoints & endpoints) != 0) names.insert(std::string(parameter.name));
  return names;
}

TEST_F(OpenaiParameters, DocumentationOfTheOtherApisNamesTheSame) {
  for (const auto& [heading, endpoints] :
       {std::pair("## Responses", openai::kResponsesEndpoint), {"## Messages", openai::kMessagesEndpoint}}) {
    std::set<std::string> told = quoted(section(heading, "apis.md"));
    told.insert("model");  // said once of both
    EXPECT_THAT(told, ::testing::IsSupersetOf(names_of(endpoints))) << heading;
  }
}

TEST_F(OpenaiParameters, DocumentationNamesTheSame) {
  const std::set<std::string> listed = names_of(openai::kOwnEndpoints);
  std::set<std::string> told;
  for (const char* heading :
       {"## Parameters", "### Embeddings and reranking", "### Filling gaps", "### Structured output", "## Endpoints"})
    told.merge(quoted(section(heading)));
  told.insert({"guided_json", "guided_regex", "guided_choice", "guided_grammar"});  // guided_*
  for (const std::string& name : listed) EXPECT_TRUE(told.contains(name)) << name << " is not in docs/server.md";
  // The first column of the table, and what comes with it.
  std::istringstream rows(section("## Parameters"));
  for (std::string row; std::getline(rows, row);) {
    if (!row.starts_with("| `")) continue;
    for (const std::string& name : quoted(row.substr(0, row.find('|', 2))))
      EXPECT_TRUE(name.ends_with('*') || listed.contains(name)) << name << " is no parameter";
  }
}

}  // namespace
}  // namespace ingot::server::testing
