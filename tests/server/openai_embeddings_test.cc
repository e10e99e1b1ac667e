#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/base64.h"
#include "server/openai_rig.h"

namespace ingot::server::testing {
namespace {

constexpr const char* kEmbeddings = "/v1/embeddings";
constexpr const char* kRerank = "/rerank";
constexpr int32_t kYes = 269, kNo = 270;
using Ids = std::vector<int32_t>;

// A model whose vector of a text is (number of its tokens, 3, 4, 0), not normalised.
struct PoolingRig : Rig {
  explicit PoolingRig(bool pools = true, bool reranks = false) : Rig({.limits = {.max_inputs = 8}}) {
    generator->limits_now.pooling.kind = pools ? Pooling::Kind::last : Pooling::Kind::none;
    generator->model_now.hidden = 4;
    generator->model_now.reranks = reranks;
    generator->model_now.query_prompt = "Q:";
    generator->on_submit = [](ScriptedGeneration& generation) {
      const GenerationRequest& request = generation.request;
      ChoiceDelta delta;
      if (request.embed) {
        delta.embedding = {static_cast<float>(request.prompt.size()), 3, 4, 0};
      } else {  // the longer a document, the less likely is yes
        const int32_t token = request.sampling.allowed_token_ids.at(0);
        delta.token_ids = {token};
        delta.scores = {
            {.token = token, .logprob = token == kYes ? -0.1f * static_cast<float>(request.prompt.size()) : -5.0f}};
      }
      generation.push(std::move(delta));
      generation.finish();
    };
    api->attach(generator);
  }
  Json good(const char* path, const Json& body) {
    const HttpReply reply = post(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return Json::parse(reply.body);
  }
};

TEST(OpenaiEmbeddings, EveryShapeOfInput) {
  PoolingRig rig;
  const Json one = rig.good(kEmbeddings, {{"model", "tiny"}, {"input", "hello"}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "tiny");
  EXPECT_EQ(one["data"], Json::parse(R"([{"object":"embedding","index":0,"embedding":[2,3,4,0]}])"));
  EXPECT_EQ(one["usage"], (Json{{"prompt_tokens", 2}, {"total_tokens", 2}}));
  const Json several = rig.good(kEmbeddings, {{"input", {"a", "bcd"}}});
  ASSERT_EQ(several["data"].size(), 2u);
  EXPECT_EQ(several["data"][1]["index"], 1);
  EXPECT_EQ(several["data"][1]["embedding"][0], 4.0);
  EXPECT_EQ(several["usage"]["total_tokens"], 6);
  EXPECT_EQ(rig.good(kEmbeddings, {{"input", Ids{7, 8, 9}}})["data"][0]["embedding"][0], 3.0);
  EXPECT_EQ(rig.good(kEmbeddings, {{"input", std::vector<Ids>{{7}, {7, 8}}}})["data"][1]["embedding"][0], 2.0);
  EXPECT_EQ(rig.generator->last()->request.max_tokens, 16) << "what Llm makes of it is Llm's matter";
  EXPECT_TRUE(rig.generator->last()->request.embed);
}

TEST(OpenaiEmbeddings, Base64HoldsTheSameNumbers) {
  PoolingRig rig;
  const Json answer = rig.good(kEmbeddings, {{"input", "hello"}, {"encoding_format", "base64"}});
  const float numbers[] = {2, 3, 4, 0};
  EXPECT_EQ(answer["data"][0]["embedding"], encode_base64({reinterpret_cast<const char*>(numbers), sizeof numbers}));
}

TEST(OpenaiEmbeddings, DimensionsCutAndRenormalise) {
  PoolingRig rig;
  const Json vector = rig.good(kEmbeddings, {{"input", Ids{1, 2, 3, 4}}, {"dimensions", 2}})["data"][0]["embedding"];
  ASSERT_EQ(vector.size(), 2u);
  EXPECT_NEAR(vector[0].get<double>(), 0.8, 1e-6);
  EXPECT_NEAR(vector[1].get<double>(), 0.6, 1e-6);
}

TEST(OpenaiEmbeddings, WhatIsRefused) {
  PoolingRig rig;
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":5})", "input"},
      {R"({"input":[[]]})", "input[0]"},
      {R"({"input":["a",5]})", "input[1]"},
      {R"({"input":[331]})", "input[0]"},
      {R"({"input":["","","","","","","","",""]})", "input"},
      {R"({"input":"a","encoding_format":"hex"})", "encoding_format"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":5})", "dimensions"},
      {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"input":"a","temperature":1})", "temperature"},
      {R"({"input":"a","nonsense":1})", "nonsense"},
      {R"({"input":"a","model":"other"})", "model"},
  };
  for (const auto& [body, param] : cases) {
    const HttpReply reply = rig.ask("POST", kEmbeddings, body);
    EXPECT_EQ(reply.status, std::string(param) == "model" ? 404 : 400) << body;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], param) << body;
  }
  const HttpReply longer = rig.post(kEmbeddings, {{"input", std::string(500, 'a')}});
  EXPECT_EQ(Json::parse(longer.body)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(
      rig.good(kEmbeddings, {{"input", std::string(500, 'a')}, {"truncate_prompt_tokens", 9}})["usage"]["total_tokens"],
      9);
}

TEST(OpenaiEmbeddings, APlainModelSaysWhatToDo) {
  PoolingRig rig(false);
  for (const auto& [path, body] :
       {std::pair(kEmbeddings, R"({"input":"a"})"), std::pair(kRerank, R"({"query":"a","documents":["b"]})")}) {
    const HttpReply reply = rig.ask("POST", path, body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.body.find("--embeddings"), std::string::npos) << reply.body;
  }
}

TEST(OpenaiRerank, CosineOfEmbeddings) {
  PoolingRig rig;
  const Json body = {{"query", "ab"}, {"documents", {"a", "abcd", Json{{"text", "abcdefgh"}}}}};
  const Json answer = rig.good(kRerank, body);
  ASSERT_EQ(answer["results"].size(), 3u);
  // The query has its prompt in front: "<s>Q:ab" is 5 tokens, as "<s>abcd" is.
  EXPECT_EQ(answer["results"][0]["index"], 1);
  EXPECT_NEAR(answer["results"][0]["relevance_score"].get<double>(), 1.0, 1e-9);
  EXPECT_EQ(answer["results"][0]["document"]["text"], "abcd");
  EXPECT_GT(answer["results"][1]["relevance_score"], answer["results"][2]["relevance_score"]);
  EXPECT_EQ(answer["usage"]["total_tokens"], 5 + 2 + 5 + 9);

  Json less = body;
  less["top_n"] = 1;
  less["return_documents"] = false;
  const Json best = rig.good("/v1/rerank", less)["results"];
  ASSERT_EQ(best.size(), 1u);
  EXPECT_FALSE(best[0].contains("document"));
  less["top_n"] = 99;
  EXPECT_EQ(rig.good(kRerank, less)["results"].size(), 3u);
}

TEST(OpenaiRerank, AModelMadeForItIsAsked) {
  PoolingRig rig(false, true);
  rig.generator->tokenizer_now = tiny_tokenizer(true);
  rig.generator->limits_now.max_model_len = 1024;
  rig.api->attach(rig.generator);
  const Json answer =
      rig.good(kRerank, {{"query", "q"}, {"documents", {"abc<|im_end|>", "a"}}, {"instruction", "find"}});
  ASSERT_EQ(rig.generator->generations.size(), 4u);
  const GenerationRequest& yes = rig.generator->generations[2]->request;
  const GenerationRequest& no = rig.generator->generations[3]->request;
  EXPECT_EQ(yes.prompt, no.prompt);
  EXPECT_EQ(yes.sampling.allowed_token_ids, Ids{kYes});
  EXPECT_EQ(no.sampling.allowed_token_ids, Ids{kNo});
  EXPECT_EQ(yes.max_tokens, 1);
  EXPECT_EQ(tiny_tokenizer(true)->decode(yes.prompt, false),
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n"
            "<Instruct>: find\n<Query>: q\n<Document>: a<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  const Ids& first = rig.generator->generations[0]->request.prompt;
  EXPECT_EQ(std::count(first.begin(), first.end(), kEnd), 2) << "what a document says is text";
  ASSERT_EQ(answer["results"].size(), 2u);
  EXPECT_EQ(answer["results"][0]["index"], 1);
  const double length = static_cast<double>(yes.prompt.size());
  EXPECT_NEAR(answer["results"][0]["relevance_score"].get<double>(), 1 / (1 + std::exp(0.1 * length - 5)), 1e-6);
  EXPECT_EQ(answer["usage"]["total_tokens"], first.size() + yes.prompt.size());
}

TEST(OpenaiRerank, WhatIsRefused) {
  PoolingRig rig;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"documents":["a"]})", "query"},
      {R"({"query":"a"})", "documents"},
      {R"({"query":"a","documents":[]})", "documents"},
      {R"({"query":"a","documents":"b"})", "documents"},
      {R"({"query":"a","documents":[5]})", "documents[0]"},
      {R"({"query":"a","documents":[{"title":"x"}]})", "documents[0].text"},
      {R"({"query":"a","documents":["","","","","","","","",""]})", "documents"},
      {R"({"query":["a"],"documents":["b"]})", "query"},
      {R"({"query":"a","documents":["b"],"top_n":0})", "top_n"},
      {R"({"query":"a","documents":["b"],"stream":true})", "stream"},
  };
  for (const auto& [body, param] : cases) {
    const HttpReply reply = rig.ask("POST", kRerank, body);
    EXPECT_EQ(reply.status, 400) << body;
    EXPECT_EQ(Json::parse(reply.body)["error"]["param"], param) << body;
  }
}

TEST(Base64, Padding) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  EXPECT_EQ(encode_base64("foo"), "Zm9v");
  EXPECT_EQ(encode_base64("foob"), "Zm9vYg==");
  EXPECT_EQ(encode_base64("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace ingot::server::testing
