// What one request may ask for, and what a request of one client may not learn of another's.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/error.h"
#include "cpu_time.h"
#include "server/openai/limits.h"
#include "server/openai_rig.h"
#include "soak.h"

namespace ingot::server::testing {
namespace {

Json error_in(const HttpReply& reply) {
  EXPECT_GE(reply.status, 400) << reply.body;
  return Json::parse(reply.body)["error"];
}

void expect_refused(const HttpReply& reply, const std::string& param, const std::string& code,
                    const std::string& word) {
  EXPECT_EQ(reply.status, 400) << reply.body.substr(0, 300);
  const Json error = error_in(reply);
  EXPECT_EQ(error["param"], param);
  EXPECT_EQ(error["code"], code);
  EXPECT_NE(error["message"].get<std::string>().find(word), std::string::npos) << error.dump();
}

void answer_at_once(Rig& rig) {
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    for (int32_t i = 0; i < static_cast<int32_t>(generation.request.prompt.size()); ++i)
      generation.scores_of_prompt.push_back({.token = generation.request.prompt[i], .rank = i});
    generation.finish();
  };
}

TEST(OpenaiLimits, StopStringsHaveANumberAndALength) {
  Rig rig;
  answer_at_once(rig);
  EXPECT_EQ(rig.post(kText, {{"prompt", "a"}, {"stop", std::vector<std::string>(64, std::string(1024, 'x'))}}).status,
            200);
  for (const char* name : {"stop", "bad_words"}) {
    expect_refused(rig.post(kText, {{"prompt", "a"}, {name, std::vector<std::string>(65, "x")}}), name,
                   "array_above_max_length", "--limit stops");
    expect_refused(rig.post(kText, {{"prompt", "a"}, {name, std::string(1025, 'x')}}), name, "string_above_max_length",
                   "--limit stop-bytes");
  }
}

TEST(OpenaiLimits, HopelessPromptsAreNotTokenized) {
  Rig rig;  // a context of 128 tokens; the longest has 12 bytes
  answer_at_once(rig);
  const std::string text(100'000, 'x');
  const Json chat = Json::array({{{"role", "user"}, {"content", text}}});
  expect_refused(rig.post(kText, {{"prompt", text}}), "prompt", "context_length_exceeded", "100000 bytes");
  expect_refused(rig.post(kText, {{"prompt", {"a", text}}}), "prompt[1]", "context_length_exceeded", "bytes");
  expect_refused(rig.post(kChat, {{"messages", chat}}), "messages", "context_length_exceeded", "bytes");
  expect_refused(rig.post("/tokenize", {{"prompt", text}}), "prompt", "context_length_exceeded", "bytes");
  EXPECT_EQ(rig.post(kText, {{"prompt", text}, {"truncate_prompt_tokens", 5}}).status, 200);
  EXPECT_EQ(rig.generator->last()->request.prompt.size(), 5u);
  // What is merely too long is told in tokens.
  expect_refused(rig.post(kText, {{"prompt", std::string(500, 'x')}}), "prompt", "context_length_exceeded",
                 "501 tokens");
}

TEST(OpenaiLimits, KeysAndValuesOfABody) {
  Rig rig({.limits = {.max_values = 100, .max_keys = 10}});
  Json many = Json::object();
  for (int i = 0; i < 12; ++i) many[std::to_string(i)] = 1;
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  HttpReply reply = rig.post(kChat, {{"messages", messages}, {"chat_template_kwargs", many}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("more than 10 keys"), std::string::npos) << reply.body;
  reply = rig.post(kText, {{"prompt", std::vector<int>(100, 1)}});
  EXPECT_NE(reply.body.find("more than 100 values"), std::string::npos) << reply.body;
}

TEST(OpenaiLimits, TheSizeOfAnAnswerIsKnownBefore) {
  Rig rig({.limits = {.max_answer_bytes = 20'000}});
  answer_at_once(rig);
  const std::vector<int> prompt(100, 7);
  expect_refused(rig.post(kText, {{"prompt", prompt}, {"prompt_logprobs", 5}, {"n", 2}}), "prompt_logprobs",
                 "answer_too_large", "--limit answer-bytes");
  EXPECT_EQ(rig.generator->generations.size(), 0u) << "nothing was begun";
  EXPECT_EQ(rig.post(kText, {{"prompt", prompt}, {"prompt_logprobs", 0}, {"n", 2}}).status, 200);
  expect_refused(rig.post(kText, {{"prompt", "a"}, {"logprobs", 10}, {"n", 10}, {"max_tokens", 20}}), "logprobs",
                 "answer_too_large", "bytes");
  EXPECT_EQ(
      rig.post(kText, {{"prompt", "a"}, {"logprobs", 10}, {"n", 10}, {"max_tokens", 20}, {"stream", true}}).status, 200)
      << "a stream is as long as it is";
  expect_refused(rig.post(kText, {{"prompt", prompt}, {"return_token_ids", true}, {"n", 64}}), "return_token_ids",
                 "answer_too_large", "bytes");
  expect_refused(rig.post("/detokenize", {{"tokens", std::vector<int>(5000, 7)}}), "tokens", "answer_too_large",
                 "bytes");
  expect_refused(rig.post("/tokenize", {{"prompt", std::string(5000, 'x')}}), "prompt", "answer_too_large", "bytes");
  // Nobody asked for so much: as much as may be.
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  const Json chat = {{"messages", messages}, {"logprobs", true}, {"top_logprobs", 20}, {"n", 2}};
  EXPECT_EQ(rig.post(kChat, chat).status, 200);
  EXPECT_GT(rig.generator->last()->request.max_tokens, 1);
  EXPECT_LT(rig.generator->last()->request.max_tokens, 10);
}

TEST(OpenaiLimits, PromptLogprobsAreWrittenOnce) {
  Rig rig;
  answer_at_once(rig);
  const Json json =
      Json::parse(rig.post(kText, {{"prompt", {{1, 2, 3}, {4, 5}}}, {"prompt_logprobs", 0}, {"n", 2}}).body);
  EXPECT_EQ(json["choices"][0]["prompt_logprobs"].size(), 3u);
  EXPECT_TRUE(json["choices"][1]["prompt_logprobs"].is_null());
  EXPECT_EQ(json["choices"][2]["prompt_logprobs"].size(), 2u);
  EXPECT_TRUE(json["choices"][3]["prompt_logprobs"].is_null());
}

TEST(OpenaiLimits, CanBeSet) {
  openai::RequestLimits limits;
  openai::set_limit(limits, "stop-bytes=7");
  openai::set_limit(limits, "logprobs=0");
  EXPECT_EQ(limits.max_stop_bytes, 7);
  EXPECT_EQ(limits.max_logprobs, 0);
  for (const char* bad : {"", "stop-bytes", "stop-bytes=", "stop-bytes=0", "stop-bytes=x", "stop-bytes=1x", "bytes=4",
                          "stop-bytes=99999999999999999999", "stop-bytes=-1"})
    EXPECT_THROW(openai::set_limit(limits, bad), Error) << bad;
}

TEST(OpenaiLimits, WorkEndsWhenItsClientLeft) {
  Rig rig;
  for (const char* path : {kText, "/tokenize"}) {
    auto exchange = std::make_shared<FakeExchange>("POST", path, Json{{"prompt", "hello"}}.dump());
    exchange->disconnect();
    rig.api->handle(exchange);
    EXPECT_NE(rig.log_lines().back().find("status=499"), std::string::npos) << rig.log_lines().back();
  }
  EXPECT_EQ(rig.generator->generations.size(), 0u);
}

// Each of these would take a second or more.
TEST(OpenaiLimits, WorkEndsSoonAfterItsClientLeft) {
  if (test::kSanitized) GTEST_SKIP() << "times of a sanitizer mean nothing";
  Rig rig;
  rig.generator->limits_now.max_model_len = int64_t{1} << 30;  // whatever is sent fits
  rig.api->attach(rig.generator);
  const std::string letters = Json{{"prompt", std::string(16 << 20, 'h')}}.dump();
  const std::string chat =
      Json{{"messages", Json::array({{{"role", "user"}, {"content", std::string(16 << 20, 'h')}}})}}.dump();
  const std::pair<const char*, std::string> cases[] = {{kText, letters}, {"/tokenize", letters}, {kChat, chat}};
  for (const auto& [path, body] : cases) {
    auto exchange = std::make_shared<FakeExchange>("POST", path, body);
    const double start = test::process_cpu_s();
    std::thread worker([&rig, exchange] { rig.api->handle(exchange); });
    while (test::process_cpu_s() < start + 0.1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    exchange->disconnect();
    const double left = test::process_cpu_s();
    worker.join();
    EXPECT_LT(test::process_cpu_s() - left, 0.1) << path << " " << body.substr(0, 20);
    EXPECT_NE(rig.log_lines().back().find("status=499"), std::string::npos) << rig.log_lines().back();
  }
}

TEST(OpenaiLimits, PriorityIsTheOperatorsToAllow) {
  Rig rig;
  answer_at_once(rig);
  expect_refused(rig.post(kText, {{"prompt", "a"}, {"priority", -1}}), "priority", "unsupported_parameter",
                 "--priority-scheduling");
  EXPECT_EQ(rig.post(kText, {{"prompt", "a"}, {"priority", 0}}).status, 200);
  Rig open({.priority_scheduling = true});
  answer_at_once(open);
  EXPECT_EQ(open.post(kText, {{"prompt", "a"}, {"priority", -1}}).status, 200);
  EXPECT_EQ(open.generator->last()->request.priority, -1);
}

GenerationRequest request_of(Rig& rig, const std::string& tenant, const Json& body, const char* path = kText) {
  auto exchange = std::make_shared<FakeExchange>("POST", path, body.dump());
  exchange->come_from(tenant.empty() ? "10.0.0.1" : tenant, tenant);
  rig.api->handle(exchange);
  EXPECT_EQ(exchange->wait().status, 200);
  return rig.generator->last()->request;
}

TEST(OpenaiLimits, KeysHaveWallsBetweenThem) {
  Rig rig;
  answer_at_once(rig);
  const Json body = {{"prompt", "hello"}};
  EXPECT_EQ(request_of(rig, "", body).cache_salt, "") << "without keys there is nobody to wall off";
  EXPECT_EQ(request_of(rig, "", body).client, "10.0.0.1");
  const std::string one = request_of(rig, "key 0", body).cache_salt, two = request_of(rig, "key 1", body).cache_salt;
  EXPECT_NE(one, "");
  EXPECT_NE(one, two);
  Json salted = body;
  salted["cache_salt"] = "s";
  const std::string added = request_of(rig, "key 0", salted).cache_salt;
  EXPECT_NE(added, one);
  EXPECT_NE(added, request_of(rig, "key 1", salted).cache_salt) << "added to the key's, not put in its place";
  EXPECT_NE(request_of(rig, "", salted).cache_salt, "");
  Rig open({.share_prefixes = true});
  answer_at_once(open);
  EXPECT_EQ(request_of(open, "key 0", body).cache_salt, "");
  EXPECT_EQ(request_of(open, "key 0", salted).cache_salt, request_of(open, "key 1", salted).cache_salt);
}

TEST(OpenaiLimits, SharedPrefixesAreNoSecret) {
  Rig rig({.shared_prefixes = {"you are a helpful bee"}});
  answer_at_once(rig);
  const GenerationRequest text = request_of(rig, "key 0", {{"prompt", "you are a helpful bee. now"}});
  EXPECT_EQ(text.shared_tokens, 21) << "the first token, and a byte each but for `he`";
  const Json messages = {{{"role", "system"}, {"content", "you are a helpful bee"}},
                         {{"role", "user"}, {"content", "hum"}}};
  const GenerationRequest chat = request_of(rig, "key 0", {{"messages", messages}}, kChat);
  EXPECT_GT(chat.shared_tokens, 21);
  EXPECT_LT(chat.shared_tokens, static_cast<int64_t>(chat.prompt.size()) - 3);
  EXPECT_LE(request_of(rig, "key 0", {{"prompt", "my own"}}).shared_tokens, 1);
}

}  // namespace
}  // namespace ingot::server::testing
