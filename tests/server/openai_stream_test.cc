// Streams: framing, chunks, usage, errors in the middle, clients that leave.
#include <gtest/gtest.h>

#include <thread>

#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

Json chat_body(Json more = Json::object()) {
  Json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"stream", true}};
  body.update(more);
  return body;
}
Json text_body(Json more = Json::object()) {
  Json body = {{"prompt", "hello"}, {"stream", true}};
  body.update(more);
  return body;
}

std::shared_ptr<FakeExchange> send(Rig& rig, const char* path, const Json& body) {
  return rig.send("POST", path, body.dump());
}

// Ends when the last log line says what it should.
std::string wait_for_log(const Rig& rig, size_t count) {
  eventually([&] { return rig.log_lines().size() >= count; });
  const auto lines = rig.log_lines();
  EXPECT_EQ(lines.size(), count);
  return lines.empty() ? "" : lines.back();
}

TEST(OpenaiStream, ChatBytes) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body());
  ScriptedGeneration& generation = *rig.generator->last();
  generation.push_text("he");
  std::string body = exchange->pull_some();
  generation.push_text("y");
  generation.push_text("!");  // merged with the one before: the reader was slow
  body += exchange->pull_some();
  generation.finish();
  const HttpReply reply = exchange->wait();
  body += reply.body;
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.content_type, "text/event-stream; charset=utf-8");
  const std::string fingerprint = parse_events(body)[0]["system_fingerprint"];
  const std::string head =
      R"(data: {"id":"chatcmpl-req-1","object":"chat.completion.chunk","created":1700000000,"model":"tiny","system_fingerprint":")" +
      fingerprint + R"(","choices":[{"index":0,)";
  EXPECT_EQ(body, head +
                      R"("delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
                      "\n\n" +
                      head +
                      R"("delta":{"content":"he"},"logprobs":null,"finish_reason":null}]})"
                      "\n\n" +
                      head +
                      R"("delta":{"content":"y!"},"logprobs":null,"finish_reason":null}]})"
                      "\n\n" +
                      head +
                      R"("delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":null}]})"
                      "\n\n" +
                      "data: [DONE]\n\n");
  EXPECT_EQ(exchange->answers(), 1);
}

TEST(OpenaiStream, CompletionBytes) {
  Rig rig;
  const auto exchange = send(rig, kText, text_body());
  rig.generator->last()->push_text("hey");
  std::string body = exchange->pull_some();
  rig.generator->last()->finish(FinishReason::length);
  body += exchange->wait().body;
  const std::string fingerprint = parse_events(body)[0]["system_fingerprint"];
  const std::string head =
      R"(data: {"id":"cmpl-req-1","object":"text_completion","created":1700000000,"model":"tiny","system_fingerprint":")" +
      fingerprint + R"(","choices":[{"index":0,)";
  EXPECT_EQ(body, head +
                      R"("text":"hey","logprobs":null,"finish_reason":null}]})"
                      "\n\n" +
                      head +
                      R"("text":"","logprobs":null,"finish_reason":"length","stop_reason":null}]})"
                      "\n\n" +
                      "data: [DONE]\n\n");
}

TEST(OpenaiStream, UsageComesLastWhenAskedFor) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body({{"stream_options", {{"include_usage", true}}}}));
  rig.generator->last()->push_text("hey");
  rig.generator->last()->finish(FinishReason::stop, {.cached_tokens = 16});
  const std::vector<Json> events = parse_events(exchange->wait().body);
  ASSERT_EQ(events.size(), 4u);  // role, text with the end, usage, [DONE]
  EXPECT_TRUE(events[0]["usage"].is_null());
  EXPECT_TRUE(events[0].contains("usage"));
  EXPECT_EQ(events[2]["choices"].size(), 0u);
  EXPECT_EQ(
      events[2]["usage"].dump(),
      R"({"prompt_tokens":20,"completion_tokens":3,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":16}})");
  EXPECT_EQ(events[3], "[DONE]");
}

TEST(OpenaiStream, ContinuousUsage) {
  Rig rig;
  const auto exchange =
      send(rig, kText, text_body({{"stream_options", {{"include_usage", true}, {"continuous_usage_stats", true}}}}));
  rig.generator->last()->push_text("he");
  std::string body = exchange->pull_some();
  rig.generator->last()->push_text("y");
  rig.generator->last()->finish();
  const std::vector<Json> events = parse_events(body + exchange->wait().body);
  EXPECT_EQ(events[0]["usage"]["completion_tokens"], 2);
  EXPECT_EQ(events[0]["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(events[1]["usage"]["completion_tokens"], 3);
}

TEST(OpenaiStream, NoUsageUnlessAskedFor) {
  Rig rig;
  const auto exchange = send(rig, kText, text_body());
  rig.generator->last()->push_text("x");
  rig.generator->last()->finish();
  for (const Json& event : parse_events(exchange->wait().body))
    EXPECT_FALSE(event.is_object() && event.contains("usage"));
}

TEST(OpenaiStream, TellsHowMuchOfThePromptWasRead) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body({{"return_progress", true}}));
  ScriptedGeneration& generation = *rig.generator->last();
  EXPECT_TRUE(generation.request.report_reading);
  generation.read_prompt({.read_tokens = 12, .cached_tokens = 8, .prefill_s = 0.25});
  std::string body = exchange->pull_some();
  generation.read_prompt({.read_tokens = 4, .cached_tokens = 0, .prefill_s = 0.5});  // preempted: not told
  generation.read_prompt({.read_tokens = 20, .cached_tokens = 8, .prefill_s = 1.5});
  body += exchange->pull_some();
  generation.push_text("hey");
  generation.finish(FinishReason::stop, {.read_tokens = 20, .cached_tokens = 8});
  body += exchange->wait().body;
  const std::vector<Json> events = parse_events(body);
  ASSERT_EQ(events.size(), 5u);  // twice how far it is, role, text with the end, [DONE]
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"].dump(), R"([{"index":0,"delta":{},"logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(events[0]["prompt_progress"].dump(), R"({"total":20,"cache":8,"processed":12,"time_ms":250})");
  EXPECT_EQ(events[1]["prompt_progress"].dump(), R"({"total":20,"cache":8,"processed":20,"time_ms":1500})");
  for (size_t i = 2; i < 4; ++i) EXPECT_FALSE(events[i].contains("prompt_progress"));
}

TEST(OpenaiStream, EveryPromptTellsUnderItsFirstIndex) {
  Rig rig;
  const auto exchange = send(rig, kText, text_body({{"prompt", {"a", "bcd"}}, {"n", 2}, {"return_progress", true}}));
  rig.generator->generations[1]->read_prompt({.read_tokens = 2});
  const std::vector<Json> events = parse_events(exchange->pull_some());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["choices"].dump(), R"([{"index":2,"text":"","logprobs":null,"finish_reason":null}])");
  EXPECT_EQ(events[0]["prompt_progress"]["processed"], 2);
  for (const auto& generation : rig.generator->generations) generation->finish();
  exchange->wait();
}

TEST(OpenaiStream, SaysNothingOfThePromptUnlessAsked) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body());
  EXPECT_FALSE(rig.generator->last()->request.report_reading);
  rig.generator->last()->read_prompt({.read_tokens = 12});
  rig.generator->last()->push_text("x");
  rig.generator->last()->finish();
  EXPECT_EQ(exchange->wait().body.find("prompt_progress"), std::string::npos);
}

TEST(OpenaiStream, EveryChoiceOfEveryPromptHasItsIndex) {
  Rig rig;
  const auto exchange = send(rig, kText, text_body({{"prompt", {"a", "b"}}, {"n", 2}}));
  ASSERT_EQ(rig.generator->generations.size(), 2u);
  for (int g = 0; g < 2; ++g)
    for (int c = 0; c < 2; ++c)
      rig.generator->generations[g]->push_text(std::string(1, static_cast<char>('p' + 2 * g + c)), c);
  rig.generator->generations[1]->finish();
  std::string body = exchange->pull_some();
  rig.generator->generations[0]->finish();
  std::map<int, std::string> texts;
  std::map<int, int> ends;
  for (const Json& event : parse_events(body + exchange->wait().body)) {
    if (!event.is_object()) continue;
    const Json& choice = event["choices"][0];
    texts[choice["index"]] += choice["text"];
    ends[choice["index"]] += choice["finish_reason"].is_string();
  }
  EXPECT_EQ(texts, (std::map<int, std::string>{{0, "p"}, {1, "q"}, {2, "r"}, {3, "s"}}));
  EXPECT_EQ(ends, (std::map<int, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
}

TEST(OpenaiStream, EachChatChoiceBeginsWithItsRole) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body({{"n", 2}}));
  rig.generator->last()->push_text("a", 1);
  std::string body = exchange->pull_some();
  rig.generator->last()->push_text("b", 0);
  rig.generator->last()->finish();
  std::map<int, int> roles;
  for (const Json& event : parse_events(body + exchange->wait().body)) {
    if (!event.is_object()) continue;
    const Json& choice = event["choices"][0];
    if (choice["delta"].contains("role")) {
      EXPECT_EQ(roles[choice["index"]]++, 0);
    } else {
      EXPECT_EQ(roles[choice["index"]], 1);
    }
  }
  EXPECT_EQ(roles.size(), 2u);
}

TEST(OpenaiStream, LogprobsGoOnFromChunkToChunk) {
  Rig rig;
  const auto exchange = send(rig, kText, text_body({{"logprobs", 1}, {"echo", true}}));
  ScriptedGeneration& generation = *rig.generator->last();
  generation.scores_of_prompt = {{.token = 256}, {.token = 262, .logprob = -1.5f, .rank = 1}};
  generation.push_text("he");
  std::string body = exchange->pull_some();
  // A token without text yet still has its logprob.
  generation.push({.token_ids = {0xc3}, .scores = {{.token = 0xc3, .logprob = -1, .rank = 1}}});
  body += exchange->pull_some();
  generation.push({.text = "é", .token_ids = {0xa9}, .scores = {{.token = 0xa9, .logprob = -1, .rank = 1}}});
  generation.push_text("y");
  generation.finish();
  const std::vector<Json> events = parse_events(body + exchange->wait().body);
  Json tokens = Json::array(), offsets = Json::array();
  std::string text;
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    const Json& choice = event["choices"][0];
    text += choice["text"];
    for (const Json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
    for (const Json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
  }
  EXPECT_EQ(text, "hellohe\u00e9y");
  EXPECT_EQ(tokens.dump(), R"(["<s>","hello","h","e","bytes:\\xc3","bytes:\\xa9","y"])");
  EXPECT_EQ(offsets.dump(), "[0,0,5,6,7,7,8]");
}

TEST(OpenaiStream, ChatLogprobsAndIds) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body({{"logprobs", true}, {"return_token_ids", true}}));
  rig.generator->last()->push_text("h");
  rig.generator->last()->finish();
  const std::vector<Json> events = parse_events(exchange->wait().body);
  EXPECT_EQ(events[0]["choices"][0]["prompt_token_ids"].size(), 20u);
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["content"][0]["bytes"].dump(), "[104]");
  EXPECT_EQ(events[1]["choices"][0]["token_ids"].dump(), "[104]");
}

TEST(OpenaiStream, FailureInTheMiddleIsAnEvent) {
  Rig rig;
  const auto exchange = send(rig, kChat, chat_body({{"stream_options", {{"include_usage", true}}}}));
  rig.generator->last()->push_text("he");
  std::string body = exchange->pull_some();
  rig.generator->last()->finish(FinishReason::error, {.error = "the device caught fire"});
  const HttpReply reply = exchange->wait();
  const std::vector<Json> events = parse_events(body + reply.body);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(
      events[2].dump(),
      R"({"error":{"message":"the device caught fire","type":"server_error","param":null,"code":"generation_failed"}})");
  EXPECT_EQ(events[3], "[DONE]");
  const std::string line = wait_for_log(rig, 1);
  EXPECT_NE(line.find("finish=error error=\"the device caught fire\""), std::string::npos) << line;
}

// Whether the reader looked in between is chance.
TEST(OpenaiStream, TextBeforeAFailureIsNotLost) {
  for (const char* path : {kChat, kText}) {
    Rig rig;
    const auto exchange = send(rig, path, path == kChat ? chat_body() : text_body());
    rig.generator->last()->push_text("he");
    rig.generator->last()->finish(FinishReason::error, {.error = "the device caught fire"});
    const std::vector<Json> events = parse_events(exchange->wait().body);
    ASSERT_GE(events.size(), 3u);
    const Json& choice = events[events.size() - 3]["choices"][0];
    EXPECT_EQ(path == kChat ? choice["delta"]["content"] : choice["text"], "he");
    EXPECT_TRUE(choice["finish_reason"].is_null());
    EXPECT_EQ(events[events.size() - 2]["error"]["message"], "the device caught fire");
  }
}

TEST(OpenaiStream, TextThatEndsWithTheRequestIsNotLost) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {  // everything is there before stream() is called
    generation.push_text("hey");
    generation.finish();
  };
  const std::vector<Json> events = parse_events(rig.post(kChat, chat_body()).body);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "hey");
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
}

TEST(OpenaiStream, DisconnectCancels) {
  for (const bool stream : {true, false}) {
    Rig rig;
    const auto exchange = send(rig, kText, {{"prompt", {"a", "b"}}, {"stream", stream}});
    rig.generator->generations[0]->push_text("x");
    exchange->disconnect();
    EXPECT_TRUE(rig.generator->generations[0]->cancelled);
    EXPECT_TRUE(rig.generator->generations[1]->cancelled);
    const std::string line = wait_for_log(rig, 1);
    EXPECT_NE(line.find(" status=499 "), std::string::npos) << line;
    EXPECT_NE(line.find(" finish=cancelled"), std::string::npos) << line;
    EXPECT_NE(line.find(" completion_tokens=1 "), std::string::npos) << line;
    EXPECT_EQ(exchange->answers(), stream ? 1 : 0);
    // Nobody holds the exchange any more.
    EXPECT_TRUE(eventually([&] { return exchange.use_count() == 1; }));
  }
}

TEST(OpenaiStream, DisconnectDuringSubmissionCancels) {
  Rig rig;
  auto exchange = std::make_shared<FakeExchange>("POST", kText, R"({"prompt":"a"})");
  rig.generator->on_submit = [&](ScriptedGeneration&) { exchange->disconnect(); };
  rig.api->handle(exchange);
  EXPECT_TRUE(rig.generator->last()->cancelled);
  wait_for_log(rig, 1);
}

TEST(OpenaiStream, TheEndLetsGoOfEverything) {
  for (const bool stream : {true, false}) {
    Rig rig;
    const auto exchange = send(rig, kText, {{"prompt", "a"}, {"stream", stream}});
    const std::weak_ptr<ScriptedGeneration> generation = rig.generator->last();
    rig.generator->last()->push_text("x");
    rig.generator->last()->finish();
    exchange->wait();
    wait_for_log(rig, 1);
    rig.generator->generations.clear();
    EXPECT_TRUE(eventually([&] { return exchange.use_count() == 1 && generation.expired(); }));
  }
}

TEST(OpenaiStream, TheApiMayGoFirst) {
  auto rig = std::make_unique<Rig>();
  const auto stream = send(*rig, kText, text_body());
  const auto whole = send(*rig, kText, {{"prompt", "a"}});
  const auto generator = rig->generator;
  rig = nullptr;
  EXPECT_TRUE(generator->generations[0]->cancelled);
  EXPECT_TRUE(generator->generations[1]->cancelled);
  generator->generations[0]->push_text("late");
  EXPECT_EQ(stream.use_count(), 1);
  EXPECT_EQ(whole.use_count(), 1);
}

TEST(OpenaiStream, ReadersAndTheStepLoopRunSideBySide) {
  Rig rig;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  for (int i = 0; i < 8; ++i)
    exchanges.push_back(send(rig, i % 2 ? kChat : kText, i % 2 ? chat_body() : text_body({{"stream", i % 4 == 0}})));
  const auto generations = rig.generator->generations;
  threads.emplace_back([&] {
    for (int t = 0; t < 200; ++t)
      for (const auto& generation : generations) generation->push_text("ab");
    for (const auto& generation : generations) generation->finish();
  });
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      if (i == 5) return exchanges[i]->disconnect();
      const HttpReply reply = exchanges[i]->wait();
      std::string text;
      if (reply.content_type == "application/json") {
        text = Json::parse(reply.body)["choices"][0]["text"];
      } else {
        for (const Json& event : parse_events(reply.body))
          if (event.is_object()) {
            const Json& choice = event["choices"][0];
            text += i % 2 ? choice["delta"].value("content", "") : choice.value("text", "");
          }
      }
      EXPECT_EQ(text.size(), 400u);
    });
  for (std::thread& thread : threads) thread.join();
  wait_for_log(rig, 8);
}

}  // namespace
}  // namespace ingot::server::testing
