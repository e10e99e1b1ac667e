#include <gtest/gtest.h>

#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

constexpr const char* kInfill = "/infill";
enum : int32_t { kBos = 256, kPrefix = 264, kSuffix, kMiddle, kRepository, kFile };
using Ids = std::vector<int32_t>;

struct InfillRig : Rig {
  explicit InfillRig(bool fills_gaps = true) {
    generator->tokenizer_now = tiny_tokenizer(fills_gaps);
    api->attach(generator);
  }
  // What the model was given for a request that it answers with "x".
  GenerationRequest given(const char* path, const Json& body) {
    generator->on_submit = [](ScriptedGeneration& generation) {
      generation.push_text("x");
      generation.finish();
    };
    const HttpReply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return generator->last()->request;
  }
};

TEST(OpenaiInfill, MarksStandAroundThePartsAndEndTheAnswer) {
  InfillRig rig;
  const GenerationRequest given = rig.given(kInfill, {{"input_prefix", "a"}, {"input_suffix", "c"}, {"n_predict", 5}});
  EXPECT_EQ(given.prompt, (Ids{kBos, kPrefix, 'a', kSuffix, 'c', kMiddle}));
  EXPECT_EQ(given.max_tokens, 5);
  const Ids& ends = given.sampling.stop_token_ids;
  for (const int32_t mark : {kPrefix, kSuffix, kMiddle, kRepository, kFile})
    EXPECT_NE(std::find(ends.begin(), ends.end(), mark), ends.end()) << mark;
}

TEST(OpenaiInfill, ThePromptGoesOnWithThePrefix) {
  InfillRig rig;
  EXPECT_EQ(rig.given(kInfill, {{"input_prefix", "a"}, {"input_suffix", "c"}, {"prompt", "b"}}).prompt,
            (Ids{kBos, kPrefix, 'a', 'b', kSuffix, 'c', kMiddle}));
}

TEST(OpenaiInfill, OtherFilesComeFirstWithTheirNames) {
  InfillRig rig;
  const Ids prompt =
      rig.given(kInfill,
                {{"input_prefix", "a"}, {"input_suffix", ""}, {"input_extra", {{{"filename", "f"}, {"text", "t"}}}}})
          .prompt;
  EXPECT_EQ(Ids(prompt.begin(), prompt.begin() + 2), (Ids{kBos, kRepository}));
  const auto file = std::find(prompt.begin(), prompt.end(), kFile);
  ASSERT_GT(prompt.end() - file, 5);
  EXPECT_EQ(Ids(file, file + 6), (Ids{kFile, 'f', '\n', 't', '\n', kFile}));
  EXPECT_EQ(Ids(prompt.end() - 4, prompt.end()), (Ids{kPrefix, 'a', kSuffix, kMiddle}));
}

TEST(OpenaiInfill, MarksWithinTheTextsAreText) {
  InfillRig rig;
  const Ids prompt = rig.given(kInfill, {{"input_prefix", "<fim_middle>"}, {"input_suffix", "<|im_end|>"}}).prompt;
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kMiddle), 1);
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), kEnd), 0);
}

TEST(OpenaiInfill, SuffixOfCompletions) {
  InfillRig rig;
  EXPECT_EQ(rig.given(kText, {{"prompt", "a"}, {"suffix", "c"}}).prompt,
            (Ids{kBos, kPrefix, 'a', kSuffix, 'c', kMiddle}));
  EXPECT_EQ(rig.given(kText, {{"prompt", "a"}, {"suffix", ""}}).prompt, (Ids{kBos, 'a'}));
  const HttpReply ids = rig.post(kText, {{"prompt", {7}}, {"suffix", "c"}});
  EXPECT_EQ(ids.status, 400);
  EXPECT_EQ(Json::parse(ids.body)["error"]["param"], "prompt");
}

TEST(OpenaiInfill, WholeAnswer) {
  InfillRig rig;
  rig.generator->on_submit = [](ScriptedGeneration& generation) {
    generation.push_text("x\ny");
    generation.push({.finish = FinishReason::stop, .stop_reason = std::string("END")});
    generation.finish_quietly({.cached_tokens = 2, .prefill_s = 0.5, .decode_s = 0.25});
  };
  const Json body = {{"input_prefix", "a"}, {"input_suffix", "c"}};
  const Json answer = Json::parse(rig.post(kInfill, body).body);
  EXPECT_EQ(answer["content"], "x\ny");
  EXPECT_EQ(answer["stop"], true);
  EXPECT_EQ(answer["stop_type"], "word");
  EXPECT_EQ(answer["stopping_word"], "END");
  EXPECT_EQ(answer["has_new_line"], true);
  EXPECT_EQ(answer["tokens_predicted"], 3);
  EXPECT_EQ(answer["tokens_evaluated"], 6);
  EXPECT_EQ(answer["tokens_cached"], 2);
  EXPECT_EQ(answer["model"], "tiny");
  EXPECT_EQ(answer["timings"]["prompt_n"], 4);
  EXPECT_EQ(answer["timings"]["predicted_per_second"], 12.0);

  Json less = body;
  less["response_fields"] = {"content", "timings/predicted_n", "nothing/there"};
  EXPECT_EQ(Json::parse(rig.post(kInfill, less).body), (Json{{"content", "x\ny"}, {"timings/predicted_n", 3}}));
}

TEST(OpenaiInfill, StreamEndsWithItsLastEvent) {
  InfillRig rig;
  auto exchange = rig.send("POST", kInfill, R"({"input_prefix":"a","input_suffix":"c","stream":true})");
  rig.generator->last()->push_text("x");
  std::vector<Json> events = parse_events(exchange->pull_some());
  rig.generator->last()->finish(FinishReason::length);
  for (const Json& event : parse_events(exchange->wait().body)) events.push_back(event);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["content"], "x");
  EXPECT_EQ(events[0]["stop"], false);
  EXPECT_EQ(events[1]["content"], "");
  EXPECT_EQ(events[1]["stop"], true);
  EXPECT_EQ(events[1]["stop_type"], "limit");
  EXPECT_EQ(events[1]["tokens_predicted"], 1);
}

TEST(OpenaiInfill, HintsOfOtherServersClientsAreTaken) {
  InfillRig rig;
  rig.given(kInfill, Json::parse(R"({"input_prefix":"a","input_suffix":"c","id_slot":0,"cache_prompt":true,"n_indent":4,
      "samplers":["top_k","infill"],"t_max_prompt_ms":500,"t_max_predict_ms":1000,"top_k":40,"top_p":0.9,"stream":false})"));
  EXPECT_EQ(rig.given(kInfill, {{"input_prefix", "a"}, {"input_suffix", "c"}, {"n_predict", 0}}).max_tokens, 0);
}

TEST(OpenaiInfill, WhatIsRefused) {
  InfillRig rig;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"input_suffix":"c"})", "input_prefix"},
      {R"({"input_prefix":"a"})", "input_suffix"},
      {R"({"input_prefix":5,"input_suffix":"c"})", "input_prefix"},
      {R"({"input_prefix":"a","input_suffix":"c","input_extra":"x"})", "input_extra"},
      {R"({"input_prefix":"a","input_suffix":"c","input_extra":["x"]})", "input_extra[0]"},
      {R"({"input_prefix":"a","input_suffix":"c","input_extra":[{"filename":"x"}]})", "input_extra[0].text"},
      {R"({"input_prefix":"a","input_suffix":"c","n":2})", "n"},
      {R"({"input_prefix":"a","input_suffix":"c","n_predict":-2})", "n_predict"},
      {R"({"input_prefix":"a","input_suffix":"c","samplers":5})", "samplers"},
      {R"({"input_prefix":"a","input_suffix":"c","nonsense":1})", "nonsense"},
  };
  for (const auto& [body, param] : cases) {
    const HttpReply reply = rig.ask("POST", kInfill, body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], param) << body;
  }
  const Json large = {{"input_prefix", "a"}, {"input_suffix", std::string(200'000, 'c')}};
  EXPECT_EQ(Json::parse(rig.post(kInfill, large).body)["error"]["code"], "context_length_exceeded");
}

TEST(OpenaiInfill, AModelWithoutMarksSaysSo) {
  InfillRig rig(false);
  const HttpReply reply = rig.post(kInfill, {{"input_prefix", "a"}, {"input_suffix", "c"}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("no tokens for filling in the middle"), std::string::npos) << reply.body;
}

TEST(OpenaiTemplate, GivesThePromptOfAConversation) {
  Rig rig;
  const Json messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(Json::parse(rig.post("/apply-template", {{"messages", messages}}).body)["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(Json::parse(
                rig.post("/apply-template", {{"messages", messages}, {"add_generation_prompt", false}}).body)["prompt"],
            "<|im_start|>user\nhi<|im_end|>\n");
  const HttpReply refused = rig.post("/apply-template", {{"messages", {{{"role", "alien"}, {"content", "x"}}}}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(rig.post("/apply-template", Json::object()).status, 400);
}

}  // namespace
}  // namespace ingot::server::testing
