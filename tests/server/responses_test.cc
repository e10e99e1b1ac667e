// POST /v1/responses and what can be asked about a response later, with a model that says what the test wants.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/agent_rig.h"
#include "server/responses/store.h"

namespace ingot::server::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json kFlatTools = Json::parse(R"([
  {"type": "function", "name": "get_weather", "strict": null, "description": "how it is",
   "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
  {"type": "function", "name": "get_time"}])");

Json request_of(Json more = Json::object()) {
  Json body = {{"input", "hello"}};
  body.update(more);
  return body;
}

// Every member that OpenAI's client requires of a response.
void expect_whole(const Json& response) {
  for (const char* name : {"id",
                           "object",
                           "created_at",
                           "status",
                           "error",
                           "incomplete_details",
                           "instructions",
                           "metadata",
                           "model",
                           "output",
                           "parallel_tool_calls",
                           "previous_response_id",
                           "reasoning",
                           "store",
                           "temperature",
                           "text",
                           "tool_choice",
                           "tools",
                           "top_p",
                           "truncation",
                           "usage"})
    EXPECT_TRUE(response.contains(name)) << name;
  EXPECT_EQ(response["object"], "response");
}

TEST(Responses, AText) {
  AgentRig rig;
  const Json response =
      rig.answer(kResponsesPath, request_of({{"instructions", "Be brief."}, {"metadata", {{"a", "b"}}}}), "Hi.");
  expect_whole(response);
  EXPECT_EQ(rig.prompt(), "system:Be brief.;user:hello;");
  EXPECT_EQ(response["id"], "resp_req-1");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["model"], "tiny");
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_EQ(response["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(response["tools"], Json::array());
  ASSERT_EQ(response["output"].size(), 1u);
  const Json& message = response["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["status"], "completed");
  EXPECT_EQ(message["content"], Json::parse(R"([{"type":"output_text","text":"Hi.","annotations":[],"logprobs":[]}])"));
  const Json& usage = response["usage"];
  EXPECT_EQ(usage["output_tokens"], 3);
  EXPECT_EQ(usage["total_tokens"], usage["input_tokens"].get<int>() + 3);
  EXPECT_EQ(usage["output_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(usage["input_tokens_details"], Json({{"cached_tokens", 0}, {"cache_write_tokens", 0}}));
}

TEST(Responses, NothingToAnswer) {
  AgentRig rig;
  EXPECT_EQ(rig.answer(kResponsesPath, Json::object(), "")["output"][0]["content"][0]["text"], "");
  EXPECT_EQ(rig.prompt(), "user:;");
  EXPECT_EQ(rig.reply(kResponsesPath, {{"input", Json::array()}}, "").status, 400);
}

TEST(Responses, ParametersArrive) {
  AgentRig rig;
  const Json response = rig.answer(
      kResponsesPath,
      request_of({{"temperature", 0.5}, {"top_p", 0.9}, {"top_k", 7}, {"seed", 3}, {"max_output_tokens", 5}}), "x");
  const GenerationRequest& generation = rig.generator->last()->request;
  EXPECT_EQ(generation.sampling.temperature, 0.5f);
  EXPECT_EQ(generation.sampling.top_p, 0.9f);
  EXPECT_EQ(generation.sampling.top_k, 7);
  EXPECT_EQ(generation.sampling.seed, 3u);
  EXPECT_EQ(generation.max_tokens, 5);
  EXPECT_EQ(response["temperature"], 0.5);
  EXPECT_EQ(response["top_p"], 0.9);
  EXPECT_EQ(response["max_output_tokens"], 5);
  rig.answer(kResponsesPath, request_of({{"reasoning", {{"effort", "high"}, {"summary", "auto"}}}}), "x");
  EXPECT_EQ(rig.prompt(), "(high)user:hello;");
}

TEST(Responses, CutOff) {
  AgentRig rig;
  const Json response = rig.answer(kResponsesPath, request_of(), "Once upon", FinishReason::length);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_TRUE(rig.answer(kResponsesPath, request_of(), "Once", FinishReason::timeout)["incomplete_details"]["reason"]
                  .is_null());
  EXPECT_EQ(rig.stream(kResponsesPath, request_of(), "Once", 2, FinishReason::length).back()["type"],
            "response.incomplete");
}

TEST(Responses, ReasoningAndCalls) {
  AgentRig rig;
  const Json response =
      rig.answer(kResponsesPath, request_of({{"tools", kFlatTools}}), kThought + "Hm.\n" + kWeatherCall + kTimeCall);
  EXPECT_EQ(rig.prompt(), "<tools>2</tools>user:hello;");
  EXPECT_EQ(response["tools"], kFlatTools);
  EXPECT_EQ(response["status"], "completed");
  ASSERT_EQ(response["output"].size(), 4u);
  const Json& reasoning = response["output"][0];
  EXPECT_EQ(reasoning["type"], "reasoning");
  EXPECT_EQ(reasoning["summary"], Json::array());
  EXPECT_EQ(reasoning["content"], Json::parse(R"([{"type":"reasoning_text","text":"Look it up."}])"));
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "Hm.\n");
  const Json& call = response["output"][2];
  EXPECT_EQ(call["type"], "function_call");
  EXPECT_EQ(call["name"], "get_weather");
  EXPECT_EQ(call["arguments"], "{\"city\": \"Oslo\"}");
  EXPECT_EQ(call["status"], "completed");
  EXPECT_THAT(call["call_id"].get<std::string>(), HasSubstr("call_"));
  EXPECT_NE(call["call_id"], response["output"][3]["call_id"]);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 11);

  const Json cut =
      rig.answer(kResponsesPath, request_of({{"tools", kFlatTools}}), kWeatherCall.substr(0, kWeatherCall.find("slo")));
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["output"][0]["arguments"], "{\"city\": \"O");
}

TEST(Responses, EventsInOrder) {
  AgentRig rig;
  const std::vector<Json> events =
      rig.stream(kResponsesPath, request_of({{"tools", kFlatTools}}), kThought + "Hm.\n" + kWeatherCall);
  EXPECT_THAT(AgentRig::types(events),
              ElementsAre("response.created", "response.in_progress",                              //
                          "response.output_item.added", "response.content_part.added",             //
                          "response.reasoning_text.delta", "response.reasoning_text.done",         //
                          "response.content_part.done", "response.output_item.done",               //
                          "response.output_item.added", "response.content_part.added",             //
                          "response.output_text.delta", "response.output_text.done",               //
                          "response.content_part.done", "response.output_item.done",               //
                          "response.output_item.added", "response.function_call_arguments.delta",  //
                          "response.function_call_arguments.done", "response.output_item.done",    //
                          "response.completed"));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  expect_whole(events[0]["response"]);
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], Json::array());
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
  EXPECT_EQ(events[2]["item"]["type"], "reasoning");
  EXPECT_EQ(events[2]["output_index"], 0);
  EXPECT_EQ(events[9]["part"], Json::parse(R"({"type":"output_text","text":"","annotations":[],"logprobs":[]})"));
  EXPECT_EQ(events[10]["output_index"], 1);
  EXPECT_EQ(events[10]["content_index"], 0);
  EXPECT_EQ(events[10]["item_id"], events[8]["item"]["id"]);
  EXPECT_EQ(events[10]["logprobs"], Json::array());
  EXPECT_EQ(events[14]["item"]["arguments"], "");
  EXPECT_EQ(events[14]["output_index"], 2);
  EXPECT_EQ(events[16]["arguments"], "{\"city\": \"Oslo\"}");
  EXPECT_EQ(events[17]["item"]["status"], "completed");
  const Json& response = events.back()["response"];
  expect_whole(response);
  EXPECT_EQ(response["output"][0], events[7]["item"]);
  EXPECT_EQ(response["output"][1], events[13]["item"]);
  EXPECT_EQ(response["output"][2], events[17]["item"]);
  EXPECT_EQ(response["usage"]["output_tokens"], (kThought + "Hm.\n" + kWeatherCall).size());
}

TEST(Responses, AStreamIsTheWholeInPieces) {
  AgentRig rig;
  const std::string text = kThought + "Hm.\n" + kWeatherCall + kTimeCall;
  Json whole = rig.answer(kResponsesPath, request_of({{"tools", kFlatTools}}), text);
  const auto without_ids = [](Json response) {
    for (Json& item : response["output"]) {
      item.erase("id");
      item.erase("call_id");
    }
    return response;
  };
  for (const size_t piece : {1, 3, 7}) {
    const std::vector<Json> events = rig.stream(kResponsesPath, request_of({{"tools", kFlatTools}}), text, piece);
    EXPECT_EQ(without_ids(events.back()["response"]), without_ids(whole)) << piece;
    std::map<int, std::string> texts;
    for (const Json& event : events)
      if (event.contains("delta")) texts[event["output_index"].get<int>()] += event["delta"].get<std::string>();
    EXPECT_THAT(texts, ElementsAre(std::pair(0, "Look it up."), std::pair(1, "Hm.\n"),
                                   std::pair(2, "{\"city\": \"Oslo\"}"), std::pair(3, "{}")));
  }
  const std::vector<Json> silent = rig.stream(kResponsesPath, request_of(), "");
  EXPECT_EQ(silent.back()["response"]["output"][0]["content"][0]["text"], "");
}

TEST(Responses, AFailureEndsTheStream) {
  AgentRig rig;
  rig.generator->on_submit = nullptr;
  const auto exchange = rig.send("POST", kResponsesPath, R"({"input":"hello","stream":true})");
  rig.generator->last()->push_text("Hi");
  std::string out;
  exchange->pull(out);
  rig.generator->last()->finish(FinishReason::error, {.error = "the device is gone"});
  while (!exchange->pull(out)) {
  }
  const std::vector<Json> events = AgentRig::named_events(out);
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "server_error");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "the device is gone");
  EXPECT_EQ(rig.ask("GET", "/v1/responses/resp_req-1").status, 404);
}

TEST(Responses, Logprobs) {
  AgentRig rig;
  const Json body = request_of({{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 1}});
  const Json scores = rig.answer(kResponsesPath, body, "Hi")["output"][0]["content"][0]["logprobs"];
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0]["token"], "H");
  EXPECT_EQ(scores[0]["top_logprobs"].size(), 1u);
  size_t streamed = 0;
  for (const Json& event : rig.stream(kResponsesPath, body, "Hi", 1))
    if (event["type"] == "response.output_text.delta") streamed += event["logprobs"].size();
  EXPECT_EQ(streamed, 2u);
}

TEST(Responses, ItemsBecomeAConversation) {
  AgentRig rig;
  const Json items = Json::parse(R"([
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"role": "user", "content": "How is it in Oslo?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Look."}]},
    {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
     "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
    {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"},
    {"type": "function_call", "call_id": "c2", "name": "get_weather", "arguments": "{\"city\":\"Rome\"}"},
    {"type": "function_call_output", "call_id": "c1", "output": "sleet"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "xyz"},
    {"role": "assistant", "content": "Bad and good."},
    {"role": "user", "content": [{"type": "input_text", "text": "And"}, {"type": "input_text", "text": "now?"}]}])");
  rig.answer(kResponsesPath, {{"input", items}, {"instructions", "Hello."}}, "x");
  EXPECT_EQ(rig.prompt(),
            "system:Hello.\n\nBe brief.;user:How is it in Oslo?;"
            "assistant:<think>Look.</think>I look.<tool_call>get_weatherOslo</tool_call>"
            "<tool_call>get_weatherRome</tool_call>;tool:sleet;tool:sun;assistant:Bad and good.;user:And\nnow?;");
}

TEST(Responses, ToolChoicesAndFormatsAreHeldTo) {
  AgentRig rig;
  const auto held = [&](Json more) {
    Json body = request_of({{"tools", kFlatTools}});
    body.update(more);
    rig.answer(kResponsesPath, body, kWeatherCall);
    return rig.generator->last()->request.structured;
  };
  EXPECT_EQ(held(Json::object()).kind, StructuredOutput::Kind::none);
  const Json required = Json::parse(held({{"tool_choice", "required"}, {"parallel_tool_calls", false}}).text);
  EXPECT_EQ(required["once"], true);
  EXPECT_EQ(required["structures"].size(), 2u);
  const Json named = Json::parse(held({{"tool_choice", {{"type", "function"}, {"name", "get_time"}}}}).text);
  EXPECT_EQ(named["structures"].size(), 1u);
  Json strict = kFlatTools;
  strict[0]["strict"] = true;
  EXPECT_TRUE(held({{"tools", strict}}).strict);
  rig.answer(kResponsesPath, request_of({{"tools", kFlatTools}, {"tool_choice", "none"}}), "x");
  EXPECT_EQ(rig.prompt(), "user:hello;");

  const Json schema = {{"type", "object"}};
  const Json format = {{"type", "json_schema"}, {"name", "thing"}, {"schema", schema}, {"strict", true}};
  const Json response = rig.answer(kResponsesPath, request_of({{"text", {{"format", format}}}}), "{}");
  EXPECT_EQ(response["text"]["format"], format);
  const StructuredOutput& structured = rig.generator->last()->request.structured;
  EXPECT_EQ(structured.kind, StructuredOutput::Kind::json_schema);
  EXPECT_EQ(structured.text, schema.dump());
  EXPECT_TRUE(structured.strict);
  EXPECT_EQ(structured.param, "text.format.schema");
  rig.answer(kResponsesPath, request_of({{"text", {{"format", {{"type", "json_object"}}}}}}), "{}");
  EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::json_object);
}

TEST(Responses, FaultsAreNamed) {
  AgentRig rig;
  const std::vector<std::pair<const char*, const char*>> kCases = {
      {R"({"input":5})", "input"},
      {R"({"input":[5]})", "input[0]"},
      {R"({"input":[{"role":"usr","content":"x"}]})", "input[0].role"},
      {R"({"input":[{"content":"x"}]})", "input[0].role"},
      {R"({"input":[{"role":"user"}]})", "input[0].content"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})", "input[0].content[0].type"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type"},
      {R"({"input":[{"type":"function_call","name":"f","arguments":"{}"}]})", "input[0].call_id"},
      {R"({"input":[{"type":"function_call_output","call_id":"f"}]})", "input[0].output"},
      {R"({"input":[{"type":"reasoning","content":7}]})", "input[0].content"},
      {R"({"input":"x","tools":[{"type":"web_search"}]})", "tools[0].type"},
      {R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name"},
      {R"({"input":"x","tools":[{"type":"function","name":"f","parameters":1}]})", "tools[0].parameters"},
      {R"({"input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"f"}]})", "tools[1].name"},
      {R"({"input":"x","tool_choice":"required"})", "tool_choice"},
      {R"({"input":"x","tool_choice":{"type":"file_search"}})", "tool_choice.type"},
      {R"({"input":"x","tool_choice":{"type":"function","name":"f"}})", "tool_choice.name"},
      {R"({"input":"x","background":true,"previous_response_id":"resp_none"})", "background"},
      {R"({"input":"x","prompt":{"id":"x"}})", "prompt"},
      {R"({"input":"x","conversation":"c"})", "conversation"},
      {R"({"input":"x","truncation":"some"})", "truncation"},
      {R"({"input":"x","text":{"format":{"type":"xml"}}})", "text.format.type"},
      {R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format.schema"},
      {R"({"input":"x","text":{"verbosity":"low"}})", "text.verbosity"},
      {R"({"input":"x","reasoning":{"effort":"huge"}})", "reasoning.effort"},
      {R"({"input":"x","metadata":{"a":1}})", "metadata.a"},
      {R"({"input":"x","include":[1]})", "include[0]"},
      {R"({"input":"x","top_logprobs":21})", "top_logprobs"},
      {R"({"input":"x","max_output_tokens":0})", "max_output_tokens"},
      {R"({"input":"x","temperature":-1})", "temperature"},
      {R"({"input":"x","messages":[]})", "messages"},
      {R"({"input":"x","n":2})", "n"},
  };
  for (const auto& [body, param] : kCases) {
    const HttpReply reply = rig.ask("POST", kResponsesPath, body);
    EXPECT_EQ(reply.status, 400) << body;
    const Json error = Json::parse(reply.body)["error"];
    EXPECT_EQ(error["param"], param) << reply.body;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(param));
  }
  EXPECT_THAT(rig.ask("POST", kResponsesPath, kCases[2].first).body, HasSubstr(R"(did you mean \"user\"?)"));
  rig.generator->limits_now.max_model_len = 8;
  rig.api->attach(rig.generator);
  EXPECT_EQ(Json::parse(rig.ask("POST", kResponsesPath, R"({"input":"long enough"})").body)["error"]["param"], "input");
  rig.answer(kResponsesPath, {{"input", "long enough"}, {"truncation", "auto"}}, "x");
}

TEST(Responses, GoingOn) {
  AgentRig rig;
  const Json first = rig.answer(kResponsesPath, request_of({{"instructions", "Be brief."}, {"tools", kFlatTools}}),
                                kThought + kWeatherCall);
  const std::string id = first["id"];
  EXPECT_EQ(Json::parse(rig.ask("GET", "/v1/responses/" + id).body), first);

  const std::string call_id = first["output"][1]["call_id"];
  const Json result = {{{"type", "function_call_output"}, {"call_id", call_id}, {"output", "sleet"}}};
  const auto exchange = std::make_shared<FakeExchange>(
      "POST", kResponsesPath, Json({{"previous_response_id", id}, {"input", result}}).dump(),
      std::vector<std::pair<std::string, std::string>>{{"content-type", "application/json"}});
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("Sleet.");
    generation.finish();
  };
  rig.api->handle(exchange);
  const Json second = Json::parse(exchange->wait().body);
  EXPECT_EQ(second["previous_response_id"], id);
  // Instructions are not carried over.
  EXPECT_EQ(rig.prompt(),
            "user:hello;assistant:<think>Look it up.</think><tool_call>get_weatherOslo</tool_call>;tool:sleet;");

  // All it answered to, newest first.
  const Json list = Json::parse(rig.ask("GET", "/v1/responses/" + id + "/input_items").body);
  ASSERT_EQ(list["data"].size(), 4u) << "the second has the id of the first: all requests of a rig have one";
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(list["data"][0]["type"], "function_call_output");
  EXPECT_EQ(list["data"][1]["type"], "function_call");
  EXPECT_EQ(list["data"][2]["type"], "reasoning");
  EXPECT_EQ(list["data"][3]["content"], Json::parse(R"([{"type":"input_text","text":"hello"}])"));
  EXPECT_EQ(list["first_id"], list["data"][0]["id"]);
  EXPECT_EQ(list["last_id"], list["data"][3]["id"]);
}

TEST(Responses, PagesOfItems) {
  AgentRig rig;
  Json items = Json::array();
  for (int i = 0; i < 5; ++i) items.push_back({{"id", fmt::format("m{}", i)}, {"role", "user"}, {"content", "x"}});
  rig.answer(kResponsesPath, {{"input", items}}, "x");
  const auto page = [&](const std::string& query) {
    const auto exchange = std::make_shared<FakeExchange>("GET", "/v1/responses/resp_req-1/input_items");
    exchange->ask_for(query);
    rig.api->handle(exchange);
    const HttpReply reply = exchange->wait();
    std::string ids = std::to_string(reply.status);
    if (reply.status != 200) return ids;
    const Json list = Json::parse(reply.body);
    for (const Json& item : list["data"]) ids += " " + item["id"].get<std::string>();
    return ids + (list["has_more"].get<bool>() ? " ..." : "");
  };
  EXPECT_EQ(page(""), "200 m4 m3 m2 m1 m0");
  EXPECT_EQ(page("order=asc&limit=2"), "200 m0 m1 ...");
  EXPECT_EQ(page("order=asc&limit=3&after=m1"), "200 m2 m3 m4");
  EXPECT_EQ(page("after=m0"), "200");
  EXPECT_EQ(page("after=nobody"), "400");
  EXPECT_EQ(page("limit=0"), "400");
  EXPECT_EQ(page("limit=101"), "400");
  EXPECT_EQ(page("limit=x"), "400");
  EXPECT_EQ(page("order=up"), "400");
}

TEST(Responses, OnlyForWhoMadeThem) {
  AgentRig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  const auto as = [&](const std::string& tenant, const std::string& method, const std::string& path,
                      const std::string& body = "") {
    const auto exchange = std::make_shared<FakeExchange>(method, path, body);
    exchange->come_from(tenant, tenant);
    rig.api->handle(exchange);
    return exchange->wait();
  };
  const std::string path = "/v1/responses/resp_req-1", more = R"({"input":"x","previous_response_id":"resp_req-1"})";
  ASSERT_EQ(as("key 0", "POST", kResponsesPath, R"({"input":"secret"})").status, 200);
  ASSERT_EQ(as("key 0", "GET", path).status, 200);

  const std::string missing = as("key 0", "GET", "/v1/responses/resp_req-2").body;
  std::string foreign = as("key 1", "GET", path).body;
  EXPECT_EQ(as("key 1", "GET", path).status, 404);
  EXPECT_EQ(foreign.replace(foreign.find("req-1"), 5, "req-2"), missing) << "as if it were not there";
  EXPECT_EQ(as("", "GET", path).status, 404);
  EXPECT_EQ(as("key 1", "GET", path + "/input_items").status, 404);
  EXPECT_EQ(as("key 1", "DELETE", path).status, 404);
  EXPECT_EQ(as("key 1", "POST", path + "/cancel").status, 404);
  const HttpReply gone_on = as("key 1", "POST", kResponsesPath, more);
  EXPECT_EQ(gone_on.status, 404);
  EXPECT_THAT(gone_on.body, HasSubstr("previous_response_not_found"));

  EXPECT_EQ(as("key 0", "POST", path + "/cancel").status, 400);
  EXPECT_EQ(Json::parse(as("key 0", "DELETE", path).body)["deleted"], true);
  EXPECT_EQ(as("key 0", "DELETE", path).status, 404);
  EXPECT_EQ(as("key 0", "POST", kResponsesPath, more).status, 404);
}

TEST(Responses, KeptOnlyIfWanted) {
  AgentRig rig;
  EXPECT_EQ(rig.answer(kResponsesPath, request_of({{"store", false}}), "x")["store"], false);
  EXPECT_EQ(rig.ask("GET", "/v1/responses/resp_req-1").status, 404);
  EXPECT_EQ(rig.answer(kResponsesPath, request_of({{"store", true}}), "x")["store"], true);
  EXPECT_EQ(rig.ask("GET", "/v1/responses/resp_req-1").status, 200);
  const auto exchange = std::make_shared<FakeExchange>("GET", "/v1/responses/resp_req-1");
  exchange->ask_for("stream=true");
  rig.api->handle(exchange);
  EXPECT_EQ(exchange->wait().status, 400);
  AgentRig none({.stored = {.bytes = 0}});
  none.answer(kResponsesPath, request_of(), "x");
  EXPECT_EQ(none.ask("GET", "/v1/responses/resp_req-1").status, 404);
}

TEST(Responses, Routes) {
  AgentRig rig;
  const HttpReply put = rig.ask("PUT", "/v1/responses/x");
  EXPECT_EQ(put.status, 405);
  EXPECT_EQ(put.headers[0].second, "GET, HEAD, DELETE");
  EXPECT_EQ(rig.ask("GET", "/v1/responses").status, 405);
  EXPECT_EQ(rig.ask("GET", "/v1/responses/").status, 404);
  EXPECT_EQ(rig.ask("GET", "/v1/responses/a/b").status, 404);
  EXPECT_THAT(rig.log_lines().back(), HasSubstr("status=404"));
  EXPECT_THAT(rig.ask("GET", "/metrics").body, HasSubstr(R"(path="/v1/responses/{id}",status="405"} 1)"));
}

TEST(Responses, WhatIsRepeatedIsBounded) {
  AgentRig rig({.limits = {.max_answer_bytes = 20'000}});
  Json tools = kFlatTools;
  tools[0]["description"] = std::string(9'000, 'd');
  rig.answer(kResponsesPath, request_of({{"tools", tools}, {"max_output_tokens", 5}}), "x");
  const HttpReply streamed =
      rig.reply(kResponsesPath, request_of({{"tools", tools}, {"max_output_tokens", 5}, {"stream", true}}), "x");
  EXPECT_EQ(streamed.status, 400) << "it is sent three times";
  EXPECT_THAT(streamed.body, HasSubstr("answer_too_large"));
}

// ---- The store by itself ----

using responses::ResponseStore;
using responses::StoredResponse;

StoredResponse of_bytes(size_t bytes) { return {.response = std::string(bytes, 'r'), .items = "[]"}; }

TEST(ResponseStore, TheOldestGoFirst) {
  ResponseStore store({.bytes = 1 << 20, .responses = 2});
  for (const char* id : {"a", "b", "c"}) store.put("t", id, of_bytes(1));
  EXPECT_EQ(store.find("t", "a"), nullptr);
  EXPECT_NE(store.find("t", "b"), nullptr);
  EXPECT_EQ(store.held().responses, 2);
  store.put("t", "b", of_bytes(2));  // anew: the youngest now
  store.put("t", "d", of_bytes(1));
  EXPECT_EQ(store.find("t", "c"), nullptr);
  EXPECT_EQ(store.find("t", "b")->response, "rr");
}

TEST(ResponseStore, Bytes) {
  ResponseStore store({.bytes = 10'000, .responses = 100});
  store.put("t", "large", of_bytes(10'001));
  EXPECT_EQ(store.held().responses, 0);
  store.put("t", "a", of_bytes(4'000));
  store.put("t", "b", of_bytes(4'000));
  store.put("t", "c", of_bytes(4'000));
  EXPECT_EQ(store.find("t", "a"), nullptr);
  EXPECT_LE(store.held().bytes, 10'000u);
  store.put("t", "b", of_bytes(20'000));
  EXPECT_EQ(store.find("t", "b"), nullptr) << "the old one is not the one that was given last";
  EXPECT_TRUE(store.erase("t", "c"));
  EXPECT_FALSE(store.erase("t", "c"));
  EXPECT_EQ(store.held().bytes, 0u);
}

TEST(ResponseStore, NobodyPushesOutWhatOthersKeep) {
  ResponseStore store({.bytes = 10'000, .responses = 100});
  store.put("quiet", "a", of_bytes(100));
  for (int i = 0; i < 50; ++i) store.put("loud", std::to_string(i), of_bytes(3'000));
  EXPECT_NE(store.find("quiet", "a"), nullptr);
  EXPECT_NE(store.find("loud", "49"), nullptr);
  EXPECT_EQ(store.find("loud", "a"), nullptr);
}

}  // namespace
}  // namespace ingot::server::testing
