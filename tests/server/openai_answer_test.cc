// The JSON of answers, whole, for every mode. Names and order of the fields are part of what clients rely on.
#include <gtest/gtest.h>

#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

Json messages() { return Json::array({{{"role", "user"}, {"content", "hello"}}}); }

// The model says "hey" and ends.
void say_hey(ScriptedGeneration& generation) {
  for (int32_t i = 0; i < generation.request.n; ++i) generation.push_text("hey", i);
  generation.finish(FinishReason::stop, {.cached_tokens = 2});
}

HttpReply answer(Rig& rig, const char* path, Json body) {
  rig.generator->on_submit = say_hey;
  return rig.post(path, body);
}

TEST(OpenaiAnswer, Chat) {
  Rig rig;
  const HttpReply reply = answer(rig, kChat, {{"model", "tiny"}, {"messages", messages()}});
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.content_type, "application/json");
  const std::string fingerprint = Json::parse(reply.body)["system_fingerprint"];
  EXPECT_EQ(fingerprint.substr(0, 3), "fp_");
  EXPECT_EQ(
      reply.body,
      R"({"id":"chatcmpl-req-1","object":"chat.completion","created":1700000000,"model":"tiny","system_fingerprint":")" +
          fingerprint +
          R"(","choices":[{"index":0,"message":{"role":"assistant","content":"hey","refusal":null},"logprobs":null,)"
          R"("finish_reason":"stop","stop_reason":null}],"usage":{"prompt_tokens":20,"completion_tokens":3,)"
          R"("total_tokens":23,"prompt_tokens_details":{"cached_tokens":2}},"service_tier":null})");
  // <|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n
  const GenerationRequest& request = rig.generator->last()->request;
  EXPECT_EQ(request.prompt.size(), 20u);
  EXPECT_EQ(request.prompt[0], 257);
  EXPECT_EQ(request.prompt[6], 262);
  EXPECT_EQ(request.id, "req-1");
  EXPECT_EQ(request.max_tokens, 128 - 20);
}

TEST(OpenaiAnswer, Completion) {
  Rig rig;
  const HttpReply reply = answer(rig, kText, {{"prompt", "hello"}});
  const std::string fingerprint = Json::parse(reply.body)["system_fingerprint"];
  EXPECT_EQ(
      reply.body,
      R"({"id":"cmpl-req-1","object":"text_completion","created":1700000000,"model":"tiny","system_fingerprint":")" +
          fingerprint +
          R"(","choices":[{"index":0,"text":"hey","logprobs":null,"finish_reason":"stop","stop_reason":null}],)"
          R"("usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":2}}})");
  EXPECT_EQ(rig.generator->last()->request.prompt, (std::vector<int32_t>{256, 262}));
  EXPECT_EQ(rig.generator->last()->request.max_tokens, 16);
}

TEST(OpenaiAnswer, GuessesInTheUsage) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("hey", 0);
    generation.finish(FinishReason::stop, {.draft_tokens = 9, .accepted_tokens = 7});
  };
  EXPECT_EQ(Json::parse(rig.post(kText, {{"prompt", "hello"}}).body)["usage"]["completion_tokens_details"].dump(),
            R"({"accepted_prediction_tokens":7,"rejected_prediction_tokens":2})");
}

TEST(OpenaiAnswer, ChoicesOfSeveralPrompts) {
  Rig rig;
  const Json json =
      Json::parse(answer(rig, kText, {{"prompt", Json::array({"hello", Json::array({1, 2, 3})})}, {"n", 2}}).body);
  ASSERT_EQ(json["choices"].size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(json["usage"]["completion_tokens"], 12);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  ASSERT_EQ(rig.generator->generations.size(), 2u);
  EXPECT_EQ(rig.generator->generations[1]->request.prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(rig.generator->generations[0]->request.id, "req-1-0");
  EXPECT_EQ(rig.generator->generations[1]->request.id, "req-1-1");
}

TEST(OpenaiAnswer, ChatLogprobs) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    EXPECT_EQ(generation.request.logprobs, 2);
    generation.push(
        {.text = "h€",
         .token_ids = {'h', kHalfCharacter, 0xac},
         .scores = {{.token = 'h', .logprob = -0.1f, .rank = 1, .top = {{'h', -0.1f}, {'x', -2.5f}}},
                    {.token = kHalfCharacter, .logprob = -3.0f, .rank = 3, .top = {{'a', -0.5f}, {'b', -1.0f}}},
                    {.token = 0xac, .logprob = -INFINITY, .rank = 300, .top = {{'a', -0.5f}, {'b', -1.0f}}}}});
    generation.finish(FinishReason::length);
  };
  const Json json =
      Json::parse(rig.post(kChat, {{"messages", messages()}, {"logprobs", true}, {"top_logprobs", 2}}).body);
  const Json expected = Json::parse(R"({"content":[
      {"token":"h","logprob":-0.1,"bytes":[104],"top_logprobs":[
        {"token":"h","logprob":-0.1,"bytes":[104]},{"token":"x","logprob":-2.5,"bytes":[120]}]},
      {"token":"\ufffd","logprob":-3.0,"bytes":[226,130],"top_logprobs":[
        {"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.0,"bytes":[98]}]},
      {"token":"\ufffd","logprob":-9999.0,"bytes":[172],"top_logprobs":[
        {"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.0,"bytes":[98]}]}],"refusal":null})");
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(), expected.dump());
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
}

void push_scored(ScriptedGeneration& generation) {
  generation.scores_of_prompt = {{.token = 256}, {.token = 262, .logprob = -1.5f, .rank = 2, .top = {{'h', -0.5f}}}};
  if (generation.request.max_tokens > 0)
    generation.push(
        {.text = "é€",
         .token_ids = {0xc3, 0xa9, kHalfCharacter, 0xac},
         .scores = {{.token = 0xc3, .logprob = -0.25f, .rank = 1, .top = {{0xc3, -0.25f}}},
                    {.token = 0xa9, .logprob = -0.5f, .rank = 2, .top = {{'a', -0.4f}}},
                    {.token = kHalfCharacter, .logprob = -1.0f, .rank = 1, .top = {{kHalfCharacter, -1.0f}}},
                    {.token = 0xac, .logprob = -2.0f, .rank = 1, .top = {{0xac, -2.0f}}}}});
  generation.finish(FinishReason::length);
}

TEST(OpenaiAnswer, CompletionLogprobs) {
  Rig rig;
  rig.generator->on_submit = push_scored;
  const Json json = Json::parse(rig.post(kText, {{"prompt", "hello"}, {"logprobs", 1}}).body);
  EXPECT_EQ(
      json["choices"][0]["logprobs"].dump(),
      R"({"text_offset":[0,0,1,1],"token_logprobs":[-0.25,-0.5,-1.0,-2.0],)"
      R"("tokens":["bytes:\\xc3","bytes:\\xa9","bytes:\\xe2\\x82","bytes:\\xac"],)"
      R"("top_logprobs":[{"bytes:\\xc3":-0.25},{"a":-0.4,"bytes:\\xa9":-0.5},{"bytes:\\xe2\\x82":-1.0},{"bytes:\\xac":-2.0}]})");
}

TEST(OpenaiAnswer, EchoWithLogprobs) {
  Rig rig;
  rig.generator->on_submit = push_scored;
  const Json json = Json::parse(rig.post(kText, {{"prompt", "hello"}, {"logprobs", 1}, {"echo", true}}).body);
  EXPECT_EQ(json["choices"][0]["text"], "helloé€");
  EXPECT_EQ(json["choices"][0]["logprobs"].dump(),
            R"({"text_offset":[0,0,5,5,6,6],"token_logprobs":[null,-1.5,-0.25,-0.5,-1.0,-2.0],)"
            R"("tokens":["<s>","hello","bytes:\\xc3","bytes:\\xa9","bytes:\\xe2\\x82","bytes:\\xac"],)"
            R"("top_logprobs":[null,{"h":-0.5,"hello":-1.5},{"bytes:\\xc3":-0.25},{"a":-0.4,"bytes:\\xa9":-0.5},)"
            R"({"bytes:\\xe2\\x82":-1.0},{"bytes:\\xac":-2.0}]})");
  EXPECT_EQ(rig.generator->last()->request.prompt_logprobs, 1);
}

TEST(OpenaiAnswer, EchoOfThePromptAlone) {
  Rig rig;
  rig.generator->on_submit = push_scored;
  const Json json =
      Json::parse(rig.post(kText, {{"prompt", "hello"}, {"logprobs", 1}, {"echo", true}, {"max_tokens", 0}}).body);
  EXPECT_EQ(json["choices"][0]["text"], "hello");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"].dump(), R"(["<s>","hello"])");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  EXPECT_EQ(rig.generator->last()->request.max_tokens, 0);
}

TEST(OpenaiAnswer, EchoOfTokenIds) {
  Rig rig;
  const Json json = Json::parse(answer(rig, kText, {{"prompt", {256, 262, 33}}, {"echo", true}}).body);
  EXPECT_EQ(json["choices"][0]["text"], "hello!hey");
  const Json special =
      Json::parse(answer(rig, kText, {{"prompt", {256, 262}}, {"echo", true}, {"skip_special_tokens", false}}).body);
  EXPECT_EQ(special["choices"][0]["text"], "<s>hellohey");
}

TEST(OpenaiAnswer, ChatEchoesTheMessageItContinues) {
  Rig rig;
  Json talk = messages();
  talk.push_back({{"role", "assistant"}, {"content", "well, "}});
  const Json json =
      Json::parse(answer(rig, kChat, {{"messages", talk}, {"continue_final_message", true}, {"echo", true}}).body);
  EXPECT_EQ(json["choices"][0]["message"]["content"], "well, hey");
  const Json other = Json::parse(answer(rig, kChat, {{"messages", messages()}, {"echo", true}}).body);
  EXPECT_EQ(other["choices"][0]["message"]["content"], "hey");
}

TEST(OpenaiAnswer, PromptLogprobs) {
  Rig rig;
  rig.generator->on_submit = push_scored;
  const char* expected =
      R"([null,{"262":{"logprob":-1.5,"rank":2,"decoded_token":"hello"},"104":{"logprob":-0.5,"rank":1,"decoded_token":"h"}}])";
  const Json text = Json::parse(rig.post(kText, {{"prompt", "hello"}, {"prompt_logprobs", 1}}).body);
  EXPECT_EQ(text["choices"][0]["prompt_logprobs"].dump(), expected);
  EXPECT_TRUE(text["choices"][0]["logprobs"].is_null());
  const Json chat = Json::parse(rig.post(kChat, {{"messages", messages()}, {"prompt_logprobs", 1}}).body);
  EXPECT_EQ(chat["prompt_logprobs"].dump(), expected);
}

TEST(OpenaiAnswer, TokenIds) {
  Rig rig;
  const Json text = Json::parse(answer(rig, kText, {{"prompt", "hello"}, {"return_token_ids", true}}).body);
  EXPECT_EQ(text["choices"][0]["token_ids"].dump(), "[104,101,121]");
  EXPECT_EQ(text["choices"][0]["prompt_token_ids"].dump(), "[256,262]");
  const Json chat = Json::parse(answer(rig, kChat, {{"messages", messages()}, {"return_token_ids", true}}).body);
  EXPECT_EQ(chat["choices"][0]["token_ids"].dump(), "[104,101,121]");
  EXPECT_EQ(chat["prompt_token_ids"].size(), 20u);
  const Json named = Json::parse(
      answer(rig, kText, {{"prompt", "hello"}, {"logprobs", 0}, {"return_tokens_as_token_ids", true}}).body);
  EXPECT_EQ(named["choices"][0]["logprobs"]["tokens"].dump(), R"(["token_id:104","token_id:101","token_id:121"])");
}

TEST(OpenaiAnswer, StopReasons) {
  Rig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push({.index = 0, .text = "a", .finish = FinishReason::stop, .stop_reason = std::string("END")});
    generation.push({.index = 1, .text = "b", .finish = FinishReason::stop, .stop_reason = 77});
    generation.push({.index = 2, .text = "c", .token_ids = {'c'}, .finish = FinishReason::timeout});
    generation.push({.index = 3, .text = "d", .finish = FinishReason::length});
    generation.push({.index = 4, .text = "e", .finish = FinishReason::no_token});
    generation.finish_quietly({});
  };
  const Json json = Json::parse(rig.post(kText, {{"prompt", "hello"}, {"n", 5}}).body);
  const auto ends = [&](int i) {
    return json["choices"][i]["finish_reason"].dump() + json["choices"][i]["stop_reason"].dump();
  };
  EXPECT_EQ(ends(0), "\"stop\"\"END\"");
  EXPECT_EQ(ends(1), "\"stop\"77");
  EXPECT_EQ(ends(2), "\"length\"\"timeout\"");
  EXPECT_EQ(ends(3), "\"length\"null");
  EXPECT_EQ(ends(4), "\"stop\"\"no_allowed_token\"");
}

TEST(OpenaiAnswer, TruncatesThePromptFromTheLeft) {
  Rig rig;
  answer(rig, kText, {{"prompt", {1, 2, 3, 4}}, {"truncate_prompt_tokens", 2}});
  EXPECT_EQ(rig.generator->last()->request.prompt, (std::vector<int32_t>{3, 4}));
  answer(rig, kText, {{"prompt", std::vector<int>(500, 7)}, {"truncate_prompt_tokens", -1}, {"max_tokens", 28}});
  EXPECT_EQ(rig.generator->last()->request.prompt.size(), 100u);
}

TEST(OpenaiAnswer, TemplateVariablesReachTheTemplate) {
  Rig rig;
  answer(rig, kChat, {{"messages", messages()}, {"chat_template_kwargs", {{"greeting", "hello"}}}});
  EXPECT_EQ(rig.generator->last()->request.prompt[0], 262);
  answer(rig, kChat, {{"messages", messages()}, {"add_special_tokens", true}, {"add_generation_prompt", false}});
  EXPECT_EQ(rig.generator->last()->request.prompt[0], 256);
  EXPECT_EQ(rig.generator->last()->request.prompt.size(), 1u + 9u);
}

TEST(OpenaiAnswer, WithoutATokenizerOnlyIdsAreServed) {
  Rig rig({}, false);
  EXPECT_EQ(rig.post(kText, {{"prompt", "hello"}}).status, 400);
  EXPECT_EQ(rig.post(kChat, {{"messages", messages()}}).status, 400);
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push({.token_ids = {5}, .scores = {{.token = 5, .logprob = -1, .rank = 1}}});
    generation.finish(FinishReason::length);
  };
  const Json json =
      Json::parse(rig.post(kText, {{"prompt", {1, 2}}, {"logprobs", 0}, {"return_token_ids", true}}).body);
  EXPECT_EQ(json["choices"][0]["text"], "");
  EXPECT_EQ(json["choices"][0]["token_ids"].dump(), "[5]");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"].dump(), R"(["token_id:5"])");
}

TEST(OpenaiAnswer, TokenizeAndBack) {
  Rig rig;
  EXPECT_EQ(rig.post("/tokenize", {{"prompt", "hello€"}}).body,
            R"({"count":5,"max_model_len":128,"tokens":[256,262,226,130,172],"token_strs":null})");
  EXPECT_EQ(
      rig.post("/tokenize",
               {{"model", "tiny"}, {"prompt", "hello!"}, {"add_special_tokens", false}, {"return_token_strs", true}})
          .body,
      R"({"count":2,"max_model_len":128,"tokens":[262,33],"token_strs":["hello","!"]})");
  EXPECT_EQ(Json::parse(rig.post("/tokenize", {{"messages", messages()}}).body)["count"], 20);
  EXPECT_EQ(
      Json::parse(rig.post("/tokenize", {{"messages", messages()}, {"add_generation_prompt", false}}).body)["count"],
      9);
  EXPECT_EQ(rig.post("/detokenize", {{"tokens", {256, 262, 226, 130, 172}}}).body, R"({"prompt":"<s>hello€"})");
  EXPECT_EQ(rig.post("/detokenize", {{"tokens", Json::array()}}).body, R"({"prompt":""})");
}

}  // namespace
}  // namespace ingot::server::testing
