// POST /v1/messages, count_tokens, and errors and models as Anthropic's clients read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/agent_rig.h"

namespace ingot::server::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Json kInputTools = Json::parse(R"([
  {"name": "get_weather", "description": "how it is", "cache_control": {"type": "ephemeral"},
   "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}},
  {"type": "custom", "name": "get_time", "input_schema": {"type": "object"}}])");

Json say(Json more = Json::object()) {
  Json body = {{"max_tokens", 100}, {"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  body.update(more);
  return body;
}
Json thinking() { return {{"type", "enabled"}, {"budget_tokens", 50}}; }

TEST(Anthropic, AText) {
  AgentRig rig;
  const Json message = rig.answer(kMessagesPath, say({{"system", "Be brief."}, {"model", "tiny"}}), "Hi.");
  EXPECT_EQ(rig.prompt(), "system:Be brief.;user:hello;<no>");
  EXPECT_EQ(message["id"], "msg_req-1");
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "tiny");
  EXPECT_EQ(message["content"], Json::parse(R"([{"type":"text","text":"Hi."}])"));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  EXPECT_EQ(message["usage"]["output_tokens"], 3);
  EXPECT_GT(message["usage"]["input_tokens"].get<int>(), 10);
  EXPECT_EQ(rig.answer(kMessagesPath, say(), "")["content"], Json::parse(R"([{"type":"text","text":""}])"));
  EXPECT_EQ(rig.answer(kMessagesPath, say(), "x", FinishReason::length)["stop_reason"], "max_tokens");
}

TEST(Anthropic, CachedTokensAreCountedApart) {
  AgentRig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("x");
    generation.finish(FinishReason::stop, {.cached_tokens = 4});
  };
  const Json usage = Json::parse(rig.post(kMessagesPath, say()).body)["usage"];
  EXPECT_EQ(usage["cache_read_input_tokens"], 4);
  EXPECT_EQ(usage["cache_creation_input_tokens"], 0);
  EXPECT_EQ(usage["input_tokens"].get<size_t>() + 4, rig.generator->last()->request.prompt.size());
}

TEST(Anthropic, ParametersArrive) {
  AgentRig rig;
  rig.answer(kMessagesPath,
             say({{"temperature", 0.5}, {"top_p", 0.9}, {"top_k", 7}, {"stop_sequences", {"END", "STOP"}}}), "x");
  const GenerationRequest& generation = rig.generator->last()->request;
  EXPECT_EQ(generation.sampling.temperature, 0.5f);
  EXPECT_EQ(generation.sampling.top_p, 0.9f);
  EXPECT_EQ(generation.sampling.top_k, 7);
  EXPECT_EQ(generation.max_tokens, 100);
  EXPECT_THAT(generation.stop.texts(), ElementsAre("END", "STOP"));
  rig.answer(kMessagesPath,
             say({{"metadata", {{"user_id", "u"}}},
                  {"service_tier", "auto"},
                  {"cache_control", Json::object()},
                  {"output_config", {{"effort", "max"}}}}),
             "x");
  EXPECT_THAT(rig.prompt(), HasSubstr("(xhigh)"));
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  rig.answer(kMessagesPath, say({{"output_config", {{"format", format}}}}), "{}");
  EXPECT_EQ(rig.generator->last()->request.structured.kind, StructuredOutput::Kind::json_schema);
  EXPECT_EQ(rig.generator->last()->request.structured.param, "output_config.format.schema");
}

TEST(Anthropic, StopSequences) {
  AgentRig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("One");
    generation.push({.finish = FinishReason::stop, .stop_reason = "END"});
    generation.finish_quietly({});
  };
  const Json message = Json::parse(rig.post(kMessagesPath, say({{"stop_sequences", {"END"}}})).body);
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "END");
}

TEST(Anthropic, ThinkingAndCalls) {
  AgentRig rig;
  const std::string text = kThought + "Hm.\n" + kWeatherCall + kTimeCall;
  const Json message = rig.answer(kMessagesPath, say({{"tools", kInputTools}, {"thinking", thinking()}}), text);
  EXPECT_EQ(rig.prompt(), "<tools>2</tools>user:hello;");
  EXPECT_EQ(message["stop_reason"], "tool_use");
  ASSERT_EQ(message["content"].size(), 4u);
  EXPECT_EQ(message["content"][0]["type"], "thinking");
  EXPECT_EQ(message["content"][0]["thinking"], "Look it up.");
  EXPECT_TRUE(message["content"][0]["signature"].is_string());
  EXPECT_EQ(message["content"][1], Json({{"type", "text"}, {"text", "Hm.\n"}}));
  EXPECT_EQ(message["content"][2]["type"], "tool_use");
  EXPECT_EQ(message["content"][2]["name"], "get_weather");
  EXPECT_EQ(message["content"][2]["input"], Json({{"city", "Oslo"}}));
  EXPECT_EQ(message["content"][3]["input"], Json::object());
  EXPECT_NE(message["content"][2]["id"], message["content"][3]["id"]);

  // Thinking is off unless it is asked for: the first block is what was said.
  for (const Json& off : {Json(), Json({{"type", "disabled"}})}) {
    const Json quiet = rig.answer(kMessagesPath, say({{"thinking", off}}), kThought + "Hi.");
    EXPECT_EQ(quiet["content"], Json::parse(R"([{"type":"text","text":"Hi."}])"));
    EXPECT_THAT(rig.prompt(), HasSubstr("<no>"));
  }
  const Json adaptive = rig.answer(kMessagesPath, say({{"thinking", {{"type", "adaptive"}}}}), kThought + "Hi.");
  EXPECT_EQ(adaptive["content"].size(), 2u);
  const Json omitted =
      rig.answer(kMessagesPath, say({{"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}}), kThought + "Hi.");
  EXPECT_EQ(omitted["content"].size(), 1u);

  const Json cut =
      rig.answer(kMessagesPath, say({{"tools", kInputTools}}), kWeatherCall.substr(0, kWeatherCall.find("slo")));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  EXPECT_EQ(cut["content"][0]["input"], Json({{"INVALID_JSON", "{\"city\": \"O"}}));
}

TEST(Anthropic, ToolChoices) {
  AgentRig rig;
  const auto held = [&](const Json& choice) {
    rig.answer(kMessagesPath, say({{"tools", kInputTools}, {"tool_choice", choice}}), kWeatherCall);
    const StructuredOutput& structured = rig.generator->last()->request.structured;
    return structured.kind == StructuredOutput::Kind::none ? Json() : Json::parse(structured.text);
  };
  EXPECT_TRUE(held({{"type", "auto"}}).is_null());
  const Json any = held({{"type", "any"}, {"disable_parallel_tool_use", true}});
  EXPECT_EQ(any["structures"].size(), 2u);
  EXPECT_EQ(any["structures"][0]["schema"], kInputTools[0]["input_schema"]);
  EXPECT_EQ(any["once"], true);
  EXPECT_EQ(held({{"type", "any"}})["once"], false);
  EXPECT_EQ(held({{"type", "tool"}, {"name", "get_time"}})["structures"].size(), 1u);
  EXPECT_TRUE(held({{"type", "none"}}).is_null());
  EXPECT_EQ(rig.prompt(), "user:hello;<no>");
  const Json single = rig.answer(
      kMessagesPath,
      say({{"tools", kInputTools}, {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}}),
      kWeatherCall + kTimeCall);
  EXPECT_EQ(single["content"].size(), 1u);
}

TEST(Anthropic, BlocksBecomeAConversation) {
  AgentRig rig;
  const Json messages = Json::parse(R"([
    {"role": "user", "content": [{"type": "text", "text": "How is it", "cache_control": {"type": "ephemeral"}},
                                 {"type": "text", "text": "in Oslo?"}]},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "Look.", "signature": "s"},
      {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Oslo"}},
      {"type": "tool_use", "id": "t2", "name": "get_weather", "input": {"city": "Rome"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "sleet"},
      {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": [{"type": "text", "text": "sun"}]},
      {"type": "tool_result", "tool_use_id": "t3"}, {"type": "text", "text": "And?"}]},
    {"role": "user", "content": "Well?"}])");
  const Json system = Json::parse(R"([{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}])");
  rig.answer(kMessagesPath, say({{"system", system}, {"messages", messages}, {"thinking", thinking()}}), "x");
  EXPECT_EQ(rig.prompt(),
            "system:Be\nbrief.;user:How is it\nin Oslo?;assistant:<think>Look.</think>I look."
            "<tool_call>get_weatherOslo</tool_call><tool_call>get_weatherRome</tool_call>;"
            "tool:sleet;tool:sun;tool:;user:And?\nWell?;");
}

TEST(Anthropic, AnAnswerThatWasBegunIsGoneOnWith) {
  AgentRig rig;
  const Json messages = Json::parse(R"([{"role":"user","content":"2+2?"},{"role":"assistant","content":"It is"}])");
  rig.answer(kMessagesPath, say({{"messages", messages}, {"thinking", thinking()}}), " 4");
  EXPECT_EQ(rig.prompt(), "user:2+2?;assistant:It is");
}

TEST(Anthropic, EventsInOrder) {
  AgentRig rig;
  const std::vector<Json> events = rig.stream(kMessagesPath, say({{"tools", kInputTools}, {"thinking", thinking()}}),
                                              kThought + "Hm.\n" + kWeatherCall + kTimeCall);
  EXPECT_THAT(AgentRig::types(events),
              ElementsAre("message_start",                                                                            //
                          "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",  //
                          "content_block_start", "content_block_delta", "content_block_stop",                         //
                          "content_block_start", "content_block_delta", "content_block_stop",                         //
                          "content_block_start", "content_block_delta", "content_block_stop",                         //
                          "message_delta", "message_stop"));
  const Json& start = events[0]["message"];
  EXPECT_EQ(start["content"], Json::array());
  EXPECT_TRUE(start["stop_reason"].is_null());
  EXPECT_EQ(start["usage"]["output_tokens"], 0);
  EXPECT_GT(start["usage"]["input_tokens"].get<int>(), 10);
  EXPECT_EQ(events[1]["content_block"], Json::parse(R"({"type":"thinking","thinking":"","signature":""})"));
  EXPECT_EQ(events[2]["delta"], Json::parse(R"({"type":"thinking_delta","thinking":"Look it up."})"));
  EXPECT_EQ(events[3]["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[5]["content_block"], Json::parse(R"({"type":"text","text":""})"));
  EXPECT_EQ(events[6]["delta"], Json::parse(R"({"type":"text_delta","text":"Hm.\n"})"));
  EXPECT_EQ(events[6]["index"], 1);
  EXPECT_EQ(events[8]["content_block"]["name"], "get_weather");
  EXPECT_EQ(events[8]["content_block"]["input"], Json::object());
  EXPECT_EQ(events[9]["delta"], Json::parse(R"({"type":"input_json_delta","partial_json":"{\"city\": \"Oslo\"}"})"));
  EXPECT_EQ(events[13]["index"], 3);
  EXPECT_EQ(events[14]["delta"], Json::parse(R"({"stop_reason":"tool_use","stop_sequence":null})"));
  EXPECT_GT(events[14]["usage"]["output_tokens"].get<int>(), 0);
}

TEST(Anthropic, AStreamIsTheWholeInPieces) {
  AgentRig rig;
  const Json body = say({{"tools", kInputTools}, {"thinking", thinking()}});
  const std::string text = kThought + "Hm.\n" + kWeatherCall;
  for (const size_t piece : {1, 3, 7}) {
    std::vector<std::string> texts;
    for (const Json& event : rig.stream(kMessagesPath, body, text, piece)) {
      if (event["type"] == "content_block_start") texts.emplace_back();
      if (event["type"] != "content_block_delta") continue;
      for (const char* name : {"thinking", "text", "partial_json"}) texts.back() += event["delta"].value(name, "");
    }
    EXPECT_THAT(texts, ElementsAre("Look it up.", "Hm.\n", "{\"city\": \"Oslo\"}")) << piece;
  }
  EXPECT_THAT(
      AgentRig::types(rig.stream(kMessagesPath, say(), "")),
      ElementsAre("message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"));
}

TEST(Anthropic, AFailureEndsTheStream) {
  AgentRig rig;
  const auto exchange = rig.send("POST", kMessagesPath, say({{"stream", true}}).dump());
  rig.generator->last()->push_text("Hi");
  std::string out;
  exchange->pull(out);
  rig.generator->last()->finish(FinishReason::error, {.error = "the device is gone"});
  while (!exchange->pull(out)) {
  }
  const Json last = AgentRig::named_events(out).back();
  EXPECT_EQ(last, Json::parse(R"({"type":"error","error":{"type":"api_error","message":"the device is gone"},
                                  "request_id":"req-1"})"));
}

TEST(Anthropic, FaultsAreNamed) {
  AgentRig rig;
  const auto with = [](const char* more) {
    return std::string(R"({"max_tokens":9,"messages":[{"role":"user","content":"x"}])") + more + "}";
  };
  const auto block = [](const char* role, const char* content) {
    return fmt::format(R"({{"max_tokens":9,"messages":[{{"role":"{}","content":{}}}]}})", role, content);
  };
  const std::vector<std::pair<std::string, const char*>> kCases = {
      {R"({"messages":[{"role":"user","content":"x"}]})", "max_tokens"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"x"}]})", "max_tokens"},
      {R"({"max_tokens":9})", "messages"},
      {R"({"max_tokens":9,"messages":[]})", "messages"},
      {R"({"max_tokens":9,"messages":"x"})", "messages"},
      {R"({"max_tokens":9,"messages":[{"role":"user","content":[]}]})", "messages"},
      {block("usr", R"("x")"), R"(messages[0].role is \"usr\", which is not a role here: did you mean \"user\"?)"},
      {block("user", "5"), "messages[0].content"},
      {block("user", R"([{"type":"image","source":{}}])"), R"(messages[0].content[0].type is \"image\")"},
      {block("user", R"([{"type":"document","source":{}}])"), R"(messages[0].content[0].type is \"document\")"},
      {block("user", R"([{"type":"tool_use","id":"a","name":"b"}])"), R"(messages[0].content[0].type is \"tool_use\")"},
      {block("user", R"([{"type":"tool_result","content":"b"}])"), "messages[0].content[0].tool_use_id"},
      {block("user", R"([{"type":"tool_result","tool_use_id":"b","content":[{"type":"image"}]}])"),
       "messages[0].content[0].content[0].type"},
      {block("assistant", R"([{"type":"tool_use","id":"a","name":"b","input":[]}])"), "messages[0].content[0].input"},
      {block("assistant", R"([{"type":"thinking"}])"), "messages[0].content[0].thinking"},
      {with(R"(,"system":5)"), "system"},
      {with(R"(,"system":[{"type":"image"}])"), "system[0].type"},
      {with(R"(,"temperature":1.5)"), "temperature"},
      {with(R"(,"tools":[{"name":"f"}])"), "tools[0].input_schema"},
      {with(R"(,"tools":[{"name":"f","input_schema":5}])"), "tools[0].input_schema"},
      {with(R"(,"tools":[{"type":"bash_20250124","name":"bash"}])"), R"(tools[0].type is \"bash_20250124\")"},
      {with(R"(,"tool_choice":{"type":"any"})"), "tool_choice"},
      {with(R"(,"tool_choice":{"type":"some"})"), "tool_choice.type"},
      {with(R"(,"tool_choice":{"type":"tool","name":"f"})"), "tool_choice.name"},
      {with(R"(,"thinking":{"type":"enabled"})"), "thinking.budget_tokens"},
      {with(R"(,"thinking":{"type":"much"})"), "thinking.type"},
      {with(R"(,"output_config":{"format":{"type":"xml"}})"), "output_config.format.type"},
      {with(R"(,"container":"x")"), "container"},
      {with(R"(,"user":"x")"), "user"},
      {with(R"(,"stop_sequences":[""])"), "stop_sequences"},
  };
  for (const auto& [body, named] : kCases) {
    const HttpReply reply = rig.ask("POST", kMessagesPath, body);
    EXPECT_EQ(reply.status, 400) << body;
    const Json error = Json::parse(reply.body);
    EXPECT_EQ(error["type"], "error");
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
    EXPECT_EQ(error["request_id"], "req-1");
    EXPECT_THAT(reply.body, HasSubstr(named)) << body;
  }
}

TEST(Anthropic, TypesOfErrors) {
  AgentRig rig;
  const auto type = [](const HttpReply& reply) {
    return std::to_string(reply.status) + " " + Json::parse(reply.body)["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(type(rig.post(kMessagesPath, say({{"model", "other"}}))), "404 not_found_error");
  EXPECT_EQ(type(rig.ask("GET", kMessagesPath)), "405 invalid_request_error");
  rig.generator->refuse = [] { throw_error(ErrorKind::overloaded, "the queue is full"); };
  const HttpReply full = rig.post(kMessagesPath, say());
  EXPECT_EQ(type(full), "503 overloaded_error");
  EXPECT_EQ(full.headers[0].first, "Retry-After");
  rig.generator->refuse = nullptr;
  EXPECT_EQ(type(rig.reply(kMessagesPath, say(), "", FinishReason::error)), "500 api_error");
  EXPECT_EQ(type(rig.reply(kMessagesPath, say(), "", FinishReason::timeout)), "504 timeout_error");
  EXPECT_FALSE(Json::parse(rig.ask("GET", "/nothing").body).contains("type")) << "OpenAI's elsewhere";
}

TEST(Anthropic, CountsTokens) {
  AgentRig rig;
  const auto count = [&](const Json& body) {
    const HttpReply reply = rig.post("/v1/messages/count_tokens", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body)["input_tokens"].get<size_t>();
  };
  Json body = say({{"tools", kInputTools}, {"system", "Be brief."}, {"thinking", thinking()}});
  rig.answer(kMessagesPath, body, "x");
  body.erase("max_tokens");
  EXPECT_EQ(count(body), rig.generator->last()->request.prompt.size());
  body["max_tokens"] = 3;
  EXPECT_EQ(rig.post("/v1/messages/count_tokens", body).status, 400);
}

TEST(Anthropic, Models) {
  AgentRig rig;
  const auto get = [&](const std::string& path) {
    const auto exchange = std::make_shared<FakeExchange>(
        "GET", path, "", std::vector<std::pair<std::string, std::string>>{{"anthropic-version", "2023-06-01"}});
    rig.api->handle(exchange);
    return Json::parse(exchange->wait().body);
  };
  const Json list = get("/v1/models");
  EXPECT_EQ(list["has_more"], false);
  EXPECT_EQ(list["first_id"], "tiny");
  EXPECT_EQ(list["last_id"], "also/tiny");
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][0]["type"], "model");
  EXPECT_EQ(list["data"][0]["display_name"], "tiny");
  EXPECT_EQ(list["data"][0]["created_at"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(get("/v1/models/also/tiny")["id"], "also/tiny");
  EXPECT_EQ(get("/v1/models/nobody")["error"]["type"], "not_found_error");
  EXPECT_EQ(Json::parse(rig.ask("GET", "/v1/models").body)["object"], "list");
}

// ---- Roles of chat completions ----

TEST(OpenaiRoles, OneThatNobodyKnowsIsNamed) {
  Rig rig;
  const auto ask = [&](const char* role) {
    return rig.post(kChat, {{"messages", {{{"role", role}, {"content", "x"}}}}, {"max_tokens", 1}});
  };
  rig.generator->on_submit = [](ScriptedGeneration& generation) { generation.finish(); };
  const HttpReply slip = ask("usr");
  EXPECT_EQ(slip.status, 400);
  EXPECT_EQ(Json::parse(slip.body)["error"]["param"], "messages[0].role");
  EXPECT_THAT(slip.body, HasSubstr(R"(is \"usr\", which is not a role here: did you mean \"user\"?)"));
  EXPECT_THAT(ask("narrator").body, HasSubstr("use user, assistant, system, developer, tool, function"));
  EXPECT_THAT(ask("alien").body, HasSubstr("no aliens")) << "the template knows them";
  for (const char* role : {"user", "assistant", "system", "developer", "tool", "function"})
    EXPECT_EQ(ask(role).status, 200) << role;
}

TEST(OpenaiRoles, DevelopersAreSystemsToOlderTemplates) {
  AgentRig rig;
  const Json body = {{"messages", {{{"role", "developer"}, {"content", "x"}}}}};
  rig.answer(kChat, body, "y");
  EXPECT_EQ(rig.prompt(), "system:x;");
  AgentRig newer({.chat_template = "{# developer #}{{ messages[0].role }}"});
  newer.answer(kChat, body, "y");
  EXPECT_EQ(newer.prompt(), "developer");
}

}  // namespace
}  // namespace ingot::server::testing
